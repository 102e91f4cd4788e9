"""SSH between nodes with known host keys and no list of them: the head node is a certificate authority."""

import base64

from components.roles.access.ssh_trust.ask import ANSWERS
from components.roles.access.ssh_trust.certificate import AUTHORITIES_LIST, PUBLIC_KEY
from components.roles.cluster_settings import ClusterSettings
from components.roles.facts import matching, whole
from components.roles.program import launcher
from components.roles.role import File, Role, template, unit_like

# Readers of the public keys and certificates that machines report.
CERTIFICATE = "ssh-ed25519-cert-v01@openssh.com"
ed25519 = matching(PUBLIC_KEY)
authorities = matching(AUTHORITIES_LIST)


def certificate(value: object) -> str:
    """Read a certificate of an ed25519 key, as `ssh-ed25519-cert-v01@openssh.com BASE64`; its comment is left out."""
    if not isinstance(value, str) or not value.isprintable():
        raise ValueError
    kind, text, *_ = [*value.split(" "), "", ""]
    # The kind is also written inside of it, after its length.
    if kind != CERTIFICATE or not base64.b64decode(text, validate=True)[4:].startswith(kind.encode()):
        raise ValueError
    return f"{kind} {text}"


def role(settings: ClusterSettings) -> Role:
    """Return the role: every node presents a certificate of the authority, and all machines trust the authority."""
    trusts = (
        _program("tailrack-known-hosts", template("ssh_trust", "tailrack-known-hosts")),
        _program("tailrack-certificate", launcher("certificate")),
        File("/etc/ssh/ssh_config.d/tailrack.conf", template("ssh_trust", "ssh_config")),
    )
    answers = (
        File(f"{ANSWERS}/authority", launcher("authority"), mode="0755"),
        File(f"{ANSWERS}/certificate", launcher("certificate", "-"), mode="0755"),
    )
    answer = _program("tailrack-answer", template("ssh_trust", "tailrack-answer"))
    identity = {"sshd_port": whole(1, 65535), "host_key": ed25519}
    return Role(
        "ssh_trust",
        modules=("host", "pod"),
        after=("users",),
        values={"generation": settings.cluster.ssh_generation},
        packages={"join": ("openssh-server",)},
        state=(
            *("/var/lib/tailrack/ssh_authority*", "/var/lib/tailrack/leave_key*", "/var/lib/tailrack/members"),
            "/etc/ssh/ssh_host_*_key*",
        ),
        files={
            "head": (
                *trusts,
                _program("tailrack-sign", launcher("sign")),
                _timer("sign", "daily", "Renew the SSH certificates of the cluster's machines"),
                _program("tailrack-ask", launcher("ask")),
            ),
            "node": (
                *trusts,
                _timer("certificate", "*-*-* 00/6:30", "Fetch this machine's next SSH certificate"),
                answer,
                *answers,
            ),
            "pod": (*trusts, answer, *answers),
        },
        on_pods=("register", "leave"),
        facts={
            "join": identity,
            "pod_join": identity,
            "register": {"certificate": certificate, "authorities": authorities},
        },
    )


def _program(name: str, text: str) -> File:
    return File(f"/usr/local/sbin/{name}", text, mode="0755")


def _timer(name: str, every: str, description: str) -> File:
    name = f"tailrack-{name}.timer"
    return unit_like("calendar", name, description=description, every=every, delay="1h")
