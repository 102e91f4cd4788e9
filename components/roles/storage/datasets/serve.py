"""Members read small files and data sets from each other's rsync server, on the tailnet and on the proven fabric.

systemd starts a process per connection. Members prove that they have the munge key, from which the password is derived,
and the process runs as the account of data sets.
"""

import hashlib
import hmac
from collections.abc import Mapping, Sequence

from components.node import files, systemd
from components.node.failure import Failure
from components.node.run import Ended, attempt, run
from components.roles.slurm.munge.switch_key import KEY, take_folder
from components.roles.storage.datasets.model import ACCOUNT, FABRIC_PORT, MODULES, PORT, SERVER, SOCKET, STATE

_USER, _TAILNET = "tailrack", "100.64.0.0/10"
PASSWORD, _SECRETS = f"{STATE}/password", f"{STATE}/secrets"
_RSYNCD = f"{STATE}/rsyncd.conf"
# The addresses of the last call of `listen`.
_NETWORKS = f"{STATE}/networks"
_CONFIG = f"""# Written by tailrack.
uid = {ACCOUNT}
gid = {ACCOUNT}
use chroot = yes
read only = yes
list = no
munge symlinks = no
reverse lookup = no
timeout = 300
dont compress = *
auth users = {_USER}
secrets file = {_SECRETS}
strict modes = yes
hosts deny = *
hosts allow = {_TAILNET} {{peers}}
&include {MODULES}"""
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
_SERVER = f"""# Written by tailrack.
[Unit]
Description=Serve data sets to another machine of the cluster
CollectMode=inactive-or-failed

[Service]
ExecStart=/usr/bin/rsync --daemon --config={_RSYNCD}
StandardInput=socket
StandardOutput=socket
StandardError=journal
# Only errors: there are several connections a minute.
LogLevelMax=warning
# A user can make links on the share that lead in circles.
MemoryMax=2G
Nice=10
IOSchedulingClass=idle
NoNewPrivileges=yes
ProtectSystem=strict
ProtectHome=read-only"""
# A file that another machine's root could name in any way becomes a plain file of root's.
_SMALL = ("-rt", "--no-links", "--no-devices", "--no-specials", "--chmod=D700,F600", "--delete", "--max-size=512m")


def prepare() -> None:
    """Make the folders, and write the password for client and server. It changes with the munge key."""
    files.make_folder(STATE, 0o711)
    files.make_folder(MODULES, 0o700)
    take_folder()
    key = files.read(KEY)
    if not key:
        raise Failure(f"there is no {KEY}, which members prove themselves with", "run up again")
    password = hmac.new(key.encode("utf-8", "surrogateescape"), b"tailrack data sets", hashlib.sha256).hexdigest()
    files.write_all(
        [files.File(PASSWORD, password, 0o640, group=ACCOUNT), files.File(_SECRETS, f"{_USER}:{password}", 0o600)]
    )


def serve(name: str, modules: Mapping[str, str]) -> None:
    """Serve folders by module name. `name`: the part of this machine that serves them, `head` or `node`."""
    text = "\n".join(f"[{module}]\n    path = {path}" for module, path in sorted(modules.items()))
    files.write(f"{MODULES}/{name}.conf", text, 0o600)


def listen(address: str, fabric: Sequence[str] | None = None, peers: Sequence[str] | None = None) -> None:
    """Listen at the tailnet's address, and at addresses of proven networks for the peers' addresses there.

    Without addresses, those of the last call stay.
    """
    last = {name: words for name, *words in (line.split() for line in files.lines(_NETWORKS) if line)}
    fabric = sorted(last.get("fabric", []) if fabric is None else fabric)
    peers = sorted(last.get("peers", []) if peers is None else peers)
    files.write(_NETWORKS, "\n".join([" ".join(["fabric", *fabric]), " ".join(["peers", *peers])]), 0o600)
    files.write(_RSYNCD, _CONFIG.format(peers=" ".join(peers)), 0o600)
    places = [f"ListenStream={address}:{PORT}", *(f"ListenStream={ip}:{FABRIC_PORT}" for ip in fabric)]
    server = files.write(f"{systemd.UNITS}/{SERVER}", _SERVER)
    changed = files.write(f"{systemd.UNITS}/{SOCKET}", _SOCKET.format(listen="\n".join(places)))
    if server or changed:
        run("systemctl", "daemon-reload")
    if changed or not systemd.is_active(SOCKET):
        systemd.enable(SOCKET)
        run("systemctl", "restart", SOCKET)


def url(address: str, port: int, path: str) -> str:
    """Return the address of a module's folder."""
    return f"rsync://{_USER}@{address}:{port}/{path}/"


def pull(address: str, module: str, folder: str, only: str = "*") -> Ended:
    """Copy small files of a module to a folder of root's: all, or those with one name."""
    files.make_folder(folder, 0o700)
    names = (f"--include=/{only}", "--exclude=*")
    options = (f"--password-file={files.on_disk(PASSWORD)}", "--contimeout=5", "--timeout=30", *_SMALL, *names)
    return attempt(
        "rsync", *options, url(address, PORT, module), f"{files.on_disk(folder)}/", limit=120, keep_errors=True
    )
