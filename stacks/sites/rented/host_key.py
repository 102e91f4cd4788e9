"""Create a host key that only this machine knows, and delete the first one after a quarter of an hour.

The first key came with the cloud's user data, which every process on the machine can read. Until it is deleted, this
step can run again if its answer was lost. The module runs on the machine.
"""

from components.node import files, packages
from components.node.files import File
from components.node.run import run
from components.node.step.step import Step

_OWN = "/etc/ssh/ssh_host_ed25519_key"
_FIRST = "/etc/ssh/ssh_host_ecdsa_key"
_TIMER = "tailrack-born-with.timer"
_UNITS = "/etc/systemd/system/tailrack-born-with"
_SERVICE_TEXT = f"""[Unit]
Description=Deletes the host key from the user data

[Service]
Type=oneshot
ExecStart=rm -f {_FIRST} {_FIRST}.pub /etc/ssh/ssh_host_rsa_key /etc/ssh/ssh_host_rsa_key.pub
ExecStart=systemctl try-restart ssh.service
ExecStart=systemctl disable {_TIMER}
ExecStart=rm -f {_UNITS}.service {_UNITS}.timer"""
_TIMER_TEXT = """[Unit]
Description=A quarter of an hour for the first connection

[Timer]
OnActiveSec=15min

[Install]
WantedBy=timers.target"""


def up(step: Step) -> None:
    """Create the key and report it."""
    packages.wait_for_cloud_init(step.host)
    if not files.read(_OWN) or not files.read(f"{_OWN}.pub"):
        for path in (_OWN, f"{_OWN}.pub"):
            files.remove(path)
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", files.on_disk(_OWN))
    _delete_first_key_later()
    # A started sshd keeps the keys that it has read.
    run("systemctl", "try-restart", "ssh.service")
    step.result("host_key", " ".join((files.read(f"{_OWN}.pub") or "").split()[:2]) or None)


def _delete_first_key_later() -> None:
    """Install a timer on the disk; a reboot starts it again until the key is deleted.

    Then both units are deleted too, because a later key of the same kind is the machine's own.
    """
    files.write_all([File(f"{_UNITS}.service", _SERVICE_TEXT), File(f"{_UNITS}.timer", _TIMER_TEXT)])
    run("systemctl", "daemon-reload")
    run("systemctl", "enable", "-q", "--now", _TIMER)
