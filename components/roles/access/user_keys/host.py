"""Files of users' keys, one for each user, opkssh for users with an identity, and the lines for sshd.

sshd uses the first value of AuthorizedKeysFile. So this machine's own value comes first in ours, and other accounts
keep theirs. It asks opkssh only about keys that are in no file, so these work without the provider.
"""

import json
import stat
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from components.node import files, folders
from components.node.artifacts import Artifact, keep_artifact
from components.node.declared import ACCOUNT, OPKSSH, OPKSSH_ACCOUNT
from components.node.failure import Failure
from components.node.fetch import proxy_variables
from components.node.log import STATE_DIR, note
from components.node.packages import architecture
from components.node.passwd import make_daemon_account, user_named
from components.node.step.step import Step
from components.roles.access.ssh_trust import sshd

FOLDER = "/etc/ssh/tailrack-keys"
CONF = "/etc/ssh/sshd_config.d/tailrack-user-keys.conf"
_FILE = f"{FOLDER}/%u"
# The configuration that sshd has read.
_READ = f"{STATE_DIR}/user-keys-read"
# Our lines do not hold for this address, from which no one connects (RFC 5737), so sshd shows what holds without them.
_WITHOUT_OURS = "192.0.2.255"
_CLIENT = "192.0.2.1"
PROGRAM = "/usr/local/lib/tailrack/opkssh"
_VERIFY = f"{PROGRAM} verify %u %k %t"
_COMMAND, _COMMAND_USER = "AuthorizedKeysCommand", "AuthorizedKeysCommandUser"
_IDENTITIES = f"{OPKSSH}/auth_id"
_OPKSSH_HEADING = "# Written by tailrack from tailrack:oidc"
_HEADING = """# Written by tailrack: keys of tailrack:users, after the files that this machine's own lines name.
# No one connects from that address: with it, tailrack asks sshd for the machine's own lines."""


@dataclass(frozen=True)
class Program:
    """opkssh for an architecture, such as amd64."""

    architecture: str
    digest: str
    source: str


@dataclass(frozen=True)
class KeysValues:
    """The lines of the config: a user's name, and a key as in authorized_keys. The others are for opkssh (role.py)."""

    user_keys_lines: list[str]
    user_keys_provider: str
    user_keys_identities: list[str]
    user_keys_programs: list[Program]

    @property
    def identified(self) -> set[str]:
        """Return the users with an identity."""
        return {line.partition(" ")[0] for line in self.user_keys_identities}

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


def _opkssh_is_ours() -> bool:
    return (files.read(f"{OPKSSH}/providers") or "").startswith(_OPKSSH_HEADING)


def keep_opkssh(step: Step, values: KeysValues) -> None:
    """Install opkssh, its provider and its identities. They are declared, so they go with the last identity."""
    if any(not name.startswith(".") for name in files.names_in(OPKSSH)) and not _opkssh_is_ours():
        raise Failure(
            f"{OPKSSH} on {step.host} has files of another opkssh, which tailrack would replace",
            f"remove {OPKSSH} and the line {_COMMAND} of sshd there, or remove tailrack:oidc; then run up again",
        )
    kind = architecture()
    program = next((program for program in values.user_keys_programs if program.architecture == kind), None)
    if program is None:
        raise Failure(
            f"{step.host} is {kind}, and tailrack:oidc.checksums has no opkssh-linux-{kind}",
            "add its sha256 from checksums.txt of the release, then run up again",
        )
    step.declare(f"{ACCOUNT}{OPKSSH_ACCOUNT}", PROGRAM)
    make_daemon_account(OPKSSH_ACCOUNT)
    texts = {
        # The first one, by which a later step knows its own folder.
        "providers": f"{_OPKSSH_HEADING}\n{values.user_keys_provider}",
        # sshd gives the program no environment. JSON is YAML too.
        "config.yml": json.dumps({"env_vars": proxy_variables()}),
        "auth_id": "\n".join(values.user_keys_identities),
    }
    step.declare(*(files.File(f"{OPKSSH}/{name}", text, 0o640, "root", OPKSSH_ACCOUNT) for name, text in texts.items()))
    artifact = Artifact(program.digest, program.source, "tailrack:oidc.artifacts", "tailrack:oidc.checksums")
    keep_artifact(step, PROGRAM, artifact)
    files.set_mode(PROGRAM, 0o755)


def let_sshd_read(names: Collection[str], identified: Collection[str], host: str) -> None:
    """Make sshd read the users' files. A configuration that sshd rejects is not kept."""
    before, text = files.read(CONF), _configuration(names, identified, host)
    changed = _put(CONF, text)
    # A step may have ended before sshd read the file that it wrote.
    if not changed and files.read(_READ) == files.read(CONF):
        return
    try:
        sshd.reload_valid()
    except Failure:
        _put(CONF, before)
        raise
    _put(_READ, text)


def _put(path: str, text: str | None) -> bool:
    return files.write(path, text) if text else files.remove(path)


def require_read(values: KeysValues, host: str) -> None:
    """Raise Failure for users whose files sshd does not read, or for whom it does not ask opkssh.

    It may not include our file, or an earlier file of this machine's owner decides for a user.
    """
    include = f"on {host}, write 'Include /etc/ssh/sshd_config.d/*.conf' as the first line of /etc/ssh/sshd_config"
    wrong = {name: found for name in values.by_user if _FILE not in (found := _setting(name, host, _CLIENT)).split()}
    if wrong:
        users, setting = ", ".join(sorted(wrong)), next(iter(wrong.values())) or "no file"
        raise Failure(
            f"sshd on {host} does not read the keys of {users} in tailrack:users: it reads {setting}",
            f"{include}, and "
            f"add {_FILE} to every line of 'grep -rn -i AuthorizedKeysFile /etc/ssh/sshd_config*' that is for them; "
            "then run up again",
        )
    identified = values.identified
    if missing := sorted(name for name in identified if _setting(name, host, _CLIENT, _COMMAND) != _VERIFY):
        raise Failure(f"sshd on {host} does not ask opkssh about {', '.join(missing)}", f"{include}; then run up again")


def _configuration(names: Collection[str], identified: Collection[str], host: str) -> str:
    """Return the lines: a block for users with the same setting of this machine, in most cases all of them."""
    by_setting: dict[str, list[str]] = {}
    for name in sorted({*names, *identified}):
        own = [path for path in _setting(name, host, _WITHOUT_OURS).split() if path not in ("none", _FILE)]
        lines = [f"AuthorizedKeysFile {' '.join([*own, _FILE])}"]
        if name in identified:
            if (command := _setting(name, host, _WITHOUT_OURS, _COMMAND)) not in ("", "none", _VERIFY):
                raise Failure(
                    f"sshd on {host} has the {_COMMAND} {command}, which opkssh would replace for {name}",
                    f"remove it there, or remove oidc from {name} in tailrack:users; then run up again",
                )
            lines += [f"{_COMMAND} {_VERIFY}", f"{_COMMAND_USER} {OPKSSH_ACCOUNT}"]
        by_setting.setdefault("\n    ".join(lines), []).append(name)
    blocks = [
        f"Match User {','.join(users)} Address *,!{_WITHOUT_OURS}\n    {lines}" for lines, users in by_setting.items()
    ]
    return "\n".join([_HEADING, *blocks]) if blocks else ""


def _setting(name: str, host: str, address: str, keyword: str = "AuthorizedKeysFile") -> str:
    """Return the files, or another setting, that hold for a user who connects from an address."""
    connection = f"user={name},host={host},addr={address},laddr={address},lport={sshd.DEFAULT_PORT}"
    rows = (line.partition(" ") for line in sshd.query("-T", "-C", connection).splitlines())
    return next((value for key, _, value in rows if key == keyword.lower()), "")


def check(step: Step, user_keys_identities: list[str]) -> None:
    """Refuse folders below which sshd runs no program: on old Debian, the group staff can write to /usr/local."""
    if user_keys_identities:
        folder = next(str(path) for path in PurePosixPath(PROGRAM).parents if files.exists(str(path)))
        real = PurePosixPath(files.real_path(folder))
        states = {str(path): folders.lstat(str(path)) for path in (real, *real.parents)}
        wrong = {path: stat.S_IMODE(state.st_mode) for path, state in states.items() if state and state.st_mode & 0o022}
        if wrong:
            shown = ", ".join(f"{path} (mode {mode:04o})" for path, mode in wrong.items())
            fix = f"run there: chmod go-w {' '.join(wrong)}; or remove oidc from tailrack:users; then run up again"
            raise Failure(f"sshd on {step.host} runs no opkssh, as accounts besides root can write to {shown}", fix)


def machine(step: Step, values: KeysValues) -> None:
    """Write the files first: a removed key must open nothing, even if sshd cannot be configured."""
    keys, identified = values.by_user, values.identified
    if keys or identified or files.exists(FOLDER) or files.exists(CONF):
        write_keys(keys)
        if _opkssh_is_ours() and files.exists(_IDENTITIES):
            files.rewrite(_IDENTITIES, "\n".join(values.user_keys_identities))
        if identified:
            keep_opkssh(step, values)
        let_sshd_read(keys, identified, step.host)


def node(step: Step, values: KeysValues) -> None:
    """Check at the step's end, when the node takes jobs already."""
    step.later.append(lambda: require_read(values, step.host))


def services(step: Step, values: KeysValues) -> None:
    """Check at the step's end, after all services have started."""
    step.later.append(lambda: require_read(values, step.host))


def leave(step: Step) -> None:
    """Remove the lines for sshd and the keys."""
    files.remove(CONF)
    files.remove_folder(FOLDER)
