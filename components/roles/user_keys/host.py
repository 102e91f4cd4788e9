"""Files of users' keys, one for each user, and the lines with which sshd reads them.

sshd uses the first value of AuthorizedKeysFile. So this machine's own value comes first in ours, and other accounts
keep theirs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from components.node import files
from components.node.failure import Failure
from components.node.log import STATE_DIR, note
from components.node.passwd import user_named
from components.node.step.step import Step
from components.roles.ssh_trust import sshd

FOLDER = "/etc/ssh/tailrack-keys"
CONF = "/etc/ssh/sshd_config.d/tailrack-user-keys.conf"
_FILE = f"{FOLDER}/%u"
# The configuration that sshd has read.
_READ = f"{STATE_DIR}/user-keys-read"
# Our lines do not hold for this address, from which no one connects (RFC 5737), so sshd shows what holds without them.
_WITHOUT_OURS = "192.0.2.255"
_CLIENT = "192.0.2.1"
_HEADING = """# Written by tailrack: keys of tailrack:users, after the files that this machine's own lines name.
# No one connects from that address: with it, tailrack asks sshd for the machine's own lines."""


@dataclass(frozen=True)
class KeysValues:
    """The lines of the config: a user's name, and a key as in authorized_keys."""

    user_keys_lines: list[str]

    @property
    def by_user(self) -> dict[str, list[str]]:
        """Return the keys of each user who has one."""
        keys: dict[str, list[str]] = {}
        for line in self.user_keys_lines:
            name, _, key = line.partition(" ")
            keys.setdefault(name, []).append(key)
        return keys


def write_keys(keys: Mapping[str, Collection[str]]) -> None:
    """Write each user's file, and remove the files of others. sshd reads them at each login, as the user."""
    for name in files.names_in(FOLDER):
        if name not in keys:
            files.remove(f"{FOLDER}/{name}")
            note(f"removed the keys of {name}")
    for name, lines in keys.items():
        account = user_named(name)
        if account is None:
            raise Failure(f"this machine has no account {name}")
        text = "\n".join(lines)
        files.write_all([files.File(f"{FOLDER}/{name}", text, 0o640, "root", account.pw_gid)])
    if not keys:
        files.remove_folder(FOLDER)


def let_sshd_read(names: Collection[str], host: str) -> None:
    """Make sshd read the users' files. A configuration that sshd rejects is not kept."""
    before, text = files.read(CONF), _configuration(names, host)
    changed = files.write(CONF, text) if text else files.remove(CONF)
    # A step may have ended before sshd read the file that it wrote.
    if not changed and files.read(_READ) == files.read(CONF):
        return
    try:
        sshd.reload_valid()
    except Failure:
        if before is None:
            files.remove(CONF)
        else:
            files.write(CONF, before)
        raise
    if text:
        files.write(_READ, text)
    else:
        files.remove(_READ)


def require_read(names: Collection[str], host: str) -> None:
    """Raise Failure for users whose files sshd does not read.

    It may not include our file, or an earlier file of this machine's owner decides for a user.
    """
    wrong = {name: setting for name in names if _FILE not in (setting := _setting(name, host, _CLIENT)).split()}
    if wrong:
        users, setting = ", ".join(sorted(wrong)), next(iter(wrong.values())) or "no file"
        raise Failure(
            f"sshd on {host} does not read the keys of {users} in tailrack:users: it reads {setting}",
            f"on {host}, write 'Include /etc/ssh/sshd_config.d/*.conf' as the first line of /etc/ssh/sshd_config, and "
            f"add {_FILE} to every line of 'grep -rn -i AuthorizedKeysFile /etc/ssh/sshd_config*' that is for them; "
            "then run up again",
        )


def _configuration(names: Collection[str], host: str) -> str:
    """Return the lines: a block for users with the same setting of this machine, in most cases all of them."""
    by_setting: dict[str, list[str]] = {}
    for name in sorted(names):
        own = [path for path in _setting(name, host, _WITHOUT_OURS).split() if path not in ("none", _FILE)]
        by_setting.setdefault(" ".join([*own, _FILE]), []).append(name)
    blocks = [
        f"Match User {','.join(users)} Address *,!{_WITHOUT_OURS}\n    AuthorizedKeysFile {setting}"
        for setting, users in by_setting.items()
    ]
    return "\n".join([_HEADING, *blocks]) if blocks else ""


def _setting(name: str, host: str, address: str) -> str:
    """Return the files that sshd reads for a user who connects from an address."""
    connection = f"user={name},host={host},addr={address},laddr={address},lport={sshd.DEFAULT_PORT}"
    rows = (line.partition(" ") for line in sshd.query("-T", "-C", connection).splitlines())
    return next((value for key, _, value in rows if key == "authorizedkeysfile"), "")


def machine(step: Step, values: KeysValues) -> None:
    """Write the files first: a removed key must open nothing, even if sshd cannot be configured."""
    keys = values.by_user
    if keys or files.exists(FOLDER) or files.exists(CONF):
        write_keys(keys)
        let_sshd_read(keys, step.host)


def node(step: Step, values: KeysValues) -> None:
    """Check at the step's end, when the node takes jobs already."""
    step.later.append(lambda: require_read(values.by_user, step.host))


def services(step: Step, values: KeysValues) -> None:
    """Check at the step's end, after all services have started."""
    step.later.append(lambda: require_read(values.by_user, step.host))


def leave(step: Step) -> None:
    """Remove the lines for sshd and the keys."""
    files.remove(CONF)
    files.remove_folder(FOLDER)
