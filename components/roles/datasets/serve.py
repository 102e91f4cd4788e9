"""A read-only rsync server on the tailnet and on the proven fabric, for members of the cluster only.

systemd starts a process per connection. Members prove that they have the munge key (password.py), and the process runs
as the account of data sets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from components.node import files, systemd
from components.node.run import run
from components.roles.datasets.password import USER, write_password
from components.roles.datasets.paths import (
    ACCOUNT,
    FABRIC_PORT,
    FILES_PROGRAM,
    MODULES,
    PORT,
    RSYNCD,
    SECRETS,
    SERVER,
    SOCKET,
    STATE,
)

_TAILNET = "100.64.0.0/10"
# The addresses of the last call of `listen`.
_NETWORKS = f"{STATE}/networks"
_CONFIG = """# Written by tailrack.
uid = {account}
gid = {account}
use chroot = yes
read only = yes
list = no
munge symlinks = no
reverse lookup = no
timeout = 300
dont compress = *
auth users = {user}
secrets file = {secrets}
strict modes = yes
hosts allow = {hosts}
hosts deny = *
&include {modules}"""
# FreeBind, because the tailnet's address may not exist yet at boot.
_SOCKET = """# Written by tailrack.
[Unit]
Description=Serve data sets to other machines of the cluster

[Socket]
{listen}
FreeBind=yes
Accept=yes
MaxConnections=200
# Otherwise many connections would make systemd close the socket for good.
TriggerLimitIntervalSec=0

[Install]
WantedBy=sockets.target"""
_SERVER = """# Written by tailrack.
[Unit]
Description=Serve data sets to another machine of the cluster
CollectMode=inactive-or-failed

[Service]
ExecStart=/usr/bin/rsync --daemon --config={config}
StandardInput=socket
StandardOutput=socket
StandardError=journal
# Only errors: there are several connections a minute.
LogLevelMax=warning
Nice=10
IOSchedulingClass=idle
NoNewPrivileges=yes
ProtectSystem=strict
ProtectHome=read-only"""


def prepare() -> None:
    """Make the folders, and write the password."""
    files.make_folder(STATE, 0o711)
    files.make_folder(MODULES, 0o700)
    write_password()


def serve(name: str, modules: Mapping[str, str]) -> None:
    """Serve folders by module name. `name`: the part of this machine that serves them, `head` or `node`."""
    text = "\n".join(f"[{module}]\n    path = {path}" for module, path in sorted(modules.items()))
    files.write(f"{MODULES}/{name}.conf", text, 0o600)


def listen(address: str, fabric: Sequence[str] | None = None, peers: Sequence[str] | None = None) -> None:
    """Listen at the tailnet's address, and at addresses of proven networks for the peers' addresses there.

    Without addresses, those of the last call stay.
    """
    lines = (line.split(" ") for line in files.lines(_NETWORKS))
    last = {name: words for name, *words in lines}
    fabric = sorted(last.get("fabric", []) if fabric is None else fabric)
    peers = sorted(last.get("peers", []) if peers is None else peers)
    files.write(_NETWORKS, "\n".join([" ".join(["fabric", *fabric]), " ".join(["peers", *peers])]), 0o600)
    hosts = " ".join([_TAILNET, *peers])
    config = _CONFIG.format(account=ACCOUNT, user=USER, secrets=SECRETS, hosts=hosts, modules=MODULES)
    files.write(RSYNCD, config, 0o600)
    places = [f"ListenStream={address}:{PORT}", *(f"ListenStream={ip}:{FABRIC_PORT}" for ip in fabric)]
    server = files.write(f"{systemd.UNITS}/{SERVER}", _SERVER.format(config=RSYNCD))
    changed = files.write(f"{systemd.UNITS}/{SOCKET}", _SOCKET.format(listen="\n".join(places)))
    if server or changed:
        run("systemctl", "daemon-reload")
    if changed or not systemd.is_active(SOCKET):
        systemd.enable(SOCKET)
        run("systemctl", "restart", SOCKET)


def remove_server() -> None:
    """Remove the server, and everything that the machine's part kept."""
    systemd.retire(SOCKET, SERVER)
    files.remove_folder(STATE)
    files.remove(FILES_PROGRAM)
