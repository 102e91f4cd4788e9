"""nfs-ganesha, an NFS server in user space, for kernels without one. It serves version 4 only."""

from components.node import files, systemd
from components.node.locks import PRIVATE
from components.node.run import run
from components.roles.base.foreign_cluster.host import set_aside
from components.roles.storage.share.exports import EXPORTS_DIR, GANESHA_FILE, OUR_GANESHA, ganesha_is_ours, own_exports

SERVER = "nfs-ganesha"
UNIT_FOLDER = f"{systemd.UNITS}/{SERVER}.service.d"
# The text that the server has read: a call may end between writing its file and the signal.
_READ = f"{PRIVATE}/ganesha-has-read"

# The head node writes to the disk without the server. Nodes see such writes after about two seconds (it counts whole
# ones), not after the default of a minute.
# Without version 3's lock manager, the grace period ends when all earlier clients are back, and at once without any.
_CONFIGURATION = """\
{ours} from {exports}/*.exports
NFS_CORE_PARAM {{ Protocols = 4; mount_path_pseudo = true; allow_set_io_flusher_fail = true; Enable_RQUOTA = false; \
Enable_NLM = false; }}
NFSV4 {{ Grace_Period = 5; Lease_Lifetime = 10; Minor_Versions = 0,1,2; RecoveryBackend = fs; \
Only_Numeric_Owners = true; }}
EXPORT {{
    Export_Id = 1; Path = {path}; Pseudo = {path}; Access_Type = NONE; Squash = Root_Squash; Anonymous_Uid = 65534; \
Anonymous_Gid = 65534; SecType = sys; PrivilegedPort = true;
    Attr_Expiration_Time = 1;
    FSAL {{ Name = VFS; }}
{clients}}}"""


def ensure_ganesha(path: str) -> None:
    """Configure the server for a folder, and run it."""
    if files.exists(GANESHA_FILE) and not ganesha_is_ours():
        set_aside(GANESHA_FILE)
    # The package does not restart a killed server, without which every node hangs.
    systemd.keep_running(f"{SERVER}.service")
    systemd.reload_stale()
    systemd.enable(f"{SERVER}.service")
    configure_ganesha(path)


def configure_ganesha(path: str) -> None:
    """Write the server's configuration from the export files, and make it read that; start it if it does not run."""
    text = configuration(path)
    files.write(GANESHA_FILE, text)
    if not systemd.is_active(SERVER):
        run("systemctl", "restart", SERVER)
    elif files.read(_READ) != f"{text}\n":
        run("systemctl", "kill", "-s", "HUP", SERVER)
    files.write(_READ, text)


def configuration(path: str) -> str:
    """Return the configuration: one EXPORT with a CLIENT block per member, from exportfs's files."""
    clients = "".join(map(_client, own_exports()))
    return _CONFIGURATION.format(ours=OUR_GANESHA, exports=EXPORTS_DIR, path=path, clients=clients)


def _client(file: str) -> str:
    path, _, client = (files.read(file) or "").partition(" ")
    address = client.partition("(")[0].removesuffix("/32")
    root = "Squash = No_Root_Squash; " if "no_root_squash" in client else ""
    return f"    CLIENT {{ Clients = {address}; Access_Type = RW; {root}}} # {path} {file.rpartition('/')[2]}\n"
