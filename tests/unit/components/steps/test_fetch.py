"""Why something could not be fetched, from what pip, curl and apt print, as they did behind a proxy that opens TLS."""

import re
from functools import partial
from pathlib import Path

import pytest

from components.node import packages
from components.node.artifacts import Artifact, keep_artifact
from components.node.failure import Failure
from components.node.fetch import fetch_reason, fetch_remedy
from components.node.step.step import Step
from tests.unit.shell import Shell

COMPONENTS = Path(__file__).parents[4] / "components"
RETRY = (
    "WARNING: Retrying (Retry(total={}, connect=None, read=None, redirect=None, status=None)) after connection broken "
    "by {}: /simple/six/\n"
)
NOTHING = "ERROR: Could not find a version that satisfies the requirement six (from versions: none)\n"
CHAIN = "certificate verify failed: self-signed certificate in certificate chain"
SSL = f"'SSLError(SSLCertVerificationError(1, '[SSL: CERTIFICATE_VERIFY_FAILED] {CHAIN} (_ssl.c:1006)'))'"
ISSUER = "certificate verify failed: unable to get local issuer certificate"
UNKNOWN = "Certificate verification failed: The certificate is NOT trusted. The certificate issuer is unknown."
APT = (
    "W: Failed to fetch https://deb.example.org/dists/trixie/InRelease  {}  Could not handshake: Error in the "
    "certificate verification. [IP: 127.0.0.1 18443]\nE: Unable to locate package jq\n"
)
CURL = "curl: (60) SSL certificate problem: self-signed certificate in certificate chain"
PRINTED = {
    "pip": (RETRY.format(1, SSL) + RETRY.format(0, SSL) + NOTHING, CHAIN),
    "a newer pip": (
        "Could not fetch URL https://index.example/simple/six/: There was a problem confirming the ssl certificate: "
        f"[SSL: CERTIFICATE_VERIFY_FAILED] {ISSUER} (_ssl.c:1006) - skipping\n{NOTHING}",
        ISSUER,
    ),
    "curl": (f"{CURL}\nMore details here: https://x\n", CHAIN),
    "apt": (APT.format(UNKNOWN), UNKNOWN.replace("Certificate verification failed", "certificate verify failed")),
    "git": (
        "fatal: unable to access 'https://x/': server certificate verification failed. CAfile: none\n",
        "certificate verify failed",
    ),
}
NO_MATCH, ERROR_404 = (
    "ERROR: No matching distribution found for six",
    "curl: (22) The requested URL returned error: 404",
)
OTHERS = {
    "no such name": (
        RETRY.format(1, "'NameResolutionError(\"host='x.invalid': [Errno -2] Name or service not known\")'") + NOTHING,
        "Name or service not known",
    ),
    "refused": (
        RETRY.format(1, "'NewConnectionError('<connection>: [Errno 111] Connection refused')'") + NOTHING,
        "Connection refused",
    ),
    "an answer": (f"WARNING: Retrying\n{NO_MATCH}\n", NO_MATCH),
    "curl": (f"{ERROR_404}\n", ERROR_404),
    "nothing known": ("what is this\n\n", "what is this"),
    "nothing": ("", ""),
    "letters that move a cursor": ("E: \x1b[2Ja source\x07\n", "E: [2Ja source"),
}


def reason(printed: str) -> tuple[str, str]:
    """Return the reason and the remedy that a step gives."""
    why = fetch_reason(printed)
    return why, fetch_remedy(why, "another one", "a1")


@pytest.mark.parametrize("program", PRINTED)
def test_a_certificate_is_the_reason_and_the_companys_authority_is_to_be_named(program: str) -> None:
    printed, why = PRINTED[program]
    said, remedy = reason(printed)
    assert said == why
    parts = ["/usr/local/share/ca-certificates/NAME.crt on a1", "update-ca-certificates", "cert = ", "/etc/pip.conf"]
    parts.append("/etc/ssl/certs/ca-certificates.crt' below [global] in ")
    assert [part for part in parts if part not in remedy] == []


@pytest.mark.parametrize("cause", OTHERS)
def test_another_cause_is_named_too_with_the_callers_own_remedy(cause: str) -> None:
    printed, why = OTHERS[cause]
    assert reason(printed) == (why, "another one")


def test_a_step_that_cannot_fetch_a_package_a_file_or_a_key_names_the_certificate(shell: Shell) -> None:
    shell.stub("curl", f"echo '{CURL}' >&2; exit 60")
    shell.stub("dpkg-query", "exit 1")
    shell.stub("dpkg")
    shell.stub("apt-cache", 'for name in "${@:2}"; do printf "%s:\\n  Candidate: 1\\n" "$name"; done')
    shell.stub("apt-get", f"case $* in *install*) cat <<'END' >&2\n{APT.format(UNKNOWN)}END\nexit 100 ;; esac")
    shell.path("/var/kept").mkdir(parents=True)
    step, file = Step("a1", "a1-node"), Artifact("00", "https://x", "a key", "another")
    ways = (partial(packages.ensure, "a1", "jq"), partial(keep_artifact, step, "/var/kept/x", file))
    for fetch in ways:
        with shell.here(), pytest.raises(Failure, match="certificate verify failed: ") as caught:
            fetch()
        assert "update-ca-certificates" in caught.value.remedy


def test_a_missing_package_names_the_certificate_error_of_its_package_list(shell: Shell) -> None:
    shell.stub("dpkg-query", "exit 1")
    shell.stub("dpkg")
    shell.stub("apt-cache", 'printf "jq:\\n  Candidate: (none)\\n"')
    # apt-get itself takes that for no failure.
    shell.stub("apt-get", f"case $* in *update*) cat <<'END' >&2\n{APT.format(UNKNOWN)}END\n ;; esac")
    lacking = r"no readable package source has jq \(certificate verify failed: The"
    with shell.here(), pytest.raises(Failure, match=lacking) as caught:
        packages.ensure("a1", "jq")
    assert "update-ca-certificates" in caught.value.remedy


def test_no_module_that_fetches_anything_keeps_the_cause_to_itself() -> None:
    fetches = re.compile(r"""\("(?:curl|apt-get)", "|"-m", "pip",""")
    texts = {path: path.read_text(encoding="utf-8") for path in COMPONENTS.rglob("*.py") if path.name != "role.py"}
    modules = [path for path, text in texts.items() if fetches.search(text)]
    assert len(modules) > 4
    assert [path.name for path in modules if "from components.node.fetch import fetch_" not in texts[path]] == []
