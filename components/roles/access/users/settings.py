"""The sections `users`, `groups` and `github_keys`, and checks for clashes between them."""

import re
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from components.roles.jobs.job_reports.settings import JobReports
from components.roles.monitoring.monitoring.settings import ADDRESS
from components.roles.slurm.accounting.settings import Limit, QosNames
from components.settings.problems import ROOT, Report, Stack, child_path, suggest
from components.settings.rules import check_known, check_once, check_unique
from components.settings.section import Help, Section, key
from components.settings.ssh_keys import UsersKey
from components.settings.types import FOLDER, HOST_PORT, Checksum, Whole, full, must, refuse, word_set

_COMMAND = "run: make github-keys STACK=..."
_TWO_LOGINS = "no one could tell whose login it is, and a removed key could still open an account"

# A company's own accounts end with `_` and its short code.
is_github_name = full(r"(?=.{1,39}\Z)[A-Za-z0-9](-?[A-Za-z0-9])*(_[A-Za-z0-9]+)?")
GithubName = Annotated[
    str,
    must(is_github_name, "is not a GitHub name of at most 39 letters, digits and single hyphens"),
    Help("a GitHub name", "write the name as in the address of the profile, such as ada-l"),
]
GithubKeys = Annotated[
    dict[GithubName, tuple[UsersKey, ...]], Help("a mapping from a GitHub name to a list of public SSH keys", _COMMAND)
]

# Users and groups of Debian's base-passwd, of packages on nodes, and of cloud images; "admin" is a group on Ubuntu.
# One set for both, because a user gets a group with the same name.
RESERVED_USERS = word_set(Path(__file__).with_name("reserved_names.txt").read_text(encoding="utf-8"))


def account_name(value: str, breaks: str) -> str:
    """Return a name that users and groups may have. `breaks` says what a name of the system would break."""
    if value in RESERVED_USERS or value.startswith("systemd-"):
        refuse("is a name that Debian or a package on the nodes uses", breaks)
    if not re.fullmatch(r"[a-z][a-z0-9_-]*", value):
        refuse("is not a name of lowercase letters, digits, '-' and '_' that starts with a letter")
    return value


UserName = Annotated[
    str,
    Field(max_length=32),
    AfterValidator(partial(account_name, breaks="the system account would get this user's key")),
    Help("a user name of at most 32 characters", "write another name such as ada"),
]
GroupName = Annotated[
    str,
    Field(max_length=32),
    AfterValidator(partial(account_name, breaks="members would get the rights of that system group")),
    Help("a group name of at most 32 characters", "write another name such as vision"),
]
Receiver = Annotated[
    str,
    must(full(rf"{ADDRESS}|[a-z]([a-z0-9-]{{0,61}}[a-z0-9])?"), "is neither a mail address nor the name of a channel"),
]
Id = Annotated[
    Whole,
    Field(ge=1000, le=4294967293),
    must(lambda number: not 60000 <= number <= 65535, "is in 60000-65535, which Debian and systemd use themselves"),
    Help("a number from 1000 up", "write one from 1000 to 59999 that nothing on the nodes uses"),
]

_ADDRESS = rf"https://{HOST_PORT}(/[A-Za-z0-9._~-]+)*"
# opkssh reads other characters in its tables as quotes and comments, and words with ':' as patterns.
Identity = Annotated[
    str,
    Field(max_length=255, pattern=r"^[A-Za-z0-9][A-Za-z0-9._%+@|=-]*$"),
    Help("a mail address or a sub of plain characters", "write it as the provider's ID token has it"),
]


class Oidc(Section):
    """Logins with an identity of a provider (OpenID Connect): opkssh checks them for sshd on every machine but pods."""

    issuer: str = key(
        "an https:// address of plain characters",
        "copy `issuer` from its /.well-known/openid-configuration, with or without the last slash",
        pattern=rf"^{_ADDRESS}/?$",
        max_length=300,
    )
    """The provider's address, exactly as `issuer` in its ID tokens."""
    client_id: str = key(
        "an ID of plain characters",
        "copy the ID of the client that you have registered at the provider",
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._~@-]{0,254}$",
    )
    """The client's ID at the provider. It needs no secret; its redirect addresses are those of opkssh,
    `http://localhost:3000/login-callback`, and the same with the ports 10001 and 11110."""
    valid_for: Literal["12h", "24h", "48h", "1week"] = "24h"
    """How long an ID token opens machines. Until then, an identity that only the provider has removed still does."""
    artifacts: str = key(
        "an https:// address or the absolute path of a folder, in plain characters",
        "write one of the two, or leave it out",
        pattern=rf"^({_ADDRESS}|{FOLDER})$",
        max_length=300,
        default="https://github.com/openpubkey/opkssh/releases/download/v0.16.0",
    )
    """Source of opkssh on each machine: an address or a folder with `opkssh-linux-amd64` or `opkssh-linux-arm64`."""
    checksums: Annotated[
        dict[Literal["opkssh-linux-amd64", "opkssh-linux-arm64"], Checksum], must(bool, "contains no checksum")
    ] = key(
        "a mapping from opkssh-linux-amd64, opkssh-linux-arm64 or both to their sha256",
        "copy them from checksums.txt of the release",
        "root would install an unverified file",
    )
    """Sha256 by file name; there are no defaults, because no second source confirms upstream's."""


class User(Section):
    """A user account, the same on every node."""

    name: UserName
    """Log-in name; the home folder is on the share."""
    uid: Id
    """User id (uid), the same on every node."""
    gid: Id = key(default_text="the uid", default_factory=lambda data: data["uid"])
    """Group id (gid), the same on every node; default: the uid."""
    keys: tuple[UsersKey, ...] = key(
        "a list of public SSH keys",
        "write the line of a .pub file, such as [ssh-ed25519 AAAA... laptop]; 'ssh-keygen -t ed25519' creates one",
        default=(),
    )
    """Public SSH keys of the user, besides those in ~/.ssh/authorized_keys; [log in](using.md#log-in)."""
    github: GithubName | None = None
    """The user's account at GitHub, whose public SSH keys `make github-keys` records in `tailrack:github_keys`."""
    oidc: Identity | None = None
    """The user's identity at the provider of `tailrack:oidc`: the mail address, or `sub` if people choose addresses."""
    groups: tuple[str, ...] = key("a list of at most 16 groups", "write [vision]", max_length=16, default=())
    """Groups of `tailrack:groups` that the user is in; 16 at most, because NFS passes on no more."""
    account: str | None = key("the name of one of accounting.accounts", "write one, or leave it out", default=None)
    """The account that this user's jobs are charged to; default: `users`."""
    gpu_hours: Limit | None = None
    """Most GPU hours of the user per calendar month."""
    max_jobs: Limit | None = None
    """Most running jobs of the user; further jobs wait."""
    notify: tuple[Receiver, ...] = key("a list of at most 5 receivers", "write [a@b.org]", max_length=5, default=())
    """Mail addresses and channels of `job_reports` for jobs without `--mail-user`, with `END,FAIL` by default."""
    qos: QosNames = ()
    """QOS that the user's jobs may request, besides `normal`."""


class Group(Section):
    """A group of users, the same on every node, with a shared folder."""

    name: GroupName
    """The group's name; its folder is `groups/NAME` on the share."""
    gid: Id
    """Group id (gid), the same on every node."""


def check_users(stack: Stack, report: Report) -> None:
    """Report users and groups that share a name, number, key, account or identity, and unknown groups and receivers."""
    users, groups = stack.config.users, stack.config.groups
    names = check_unique(users, "name", "is also the name of {}", "one account would get the numbers of both", report)
    breaks = "they would own each other's files"
    check_unique(users, "uid", "is also the uid of {}", breaks, report, "change one of the uids")
    gids: dict[int, User] = {}
    channels = {channel.name for channel in getattr(stack.config.job_reports, "channels", ())}
    for user in users:
        if user.name in stack.logins and user.name != "root":
            problem = f"is the account that tailrack logs in with at {stack.logins[user.name]}"
            report.bad((user, "name"), problem, "its uid cannot change while it is logged in", "rename the user")
        if (first := gids.setdefault(user.gid, user)) is not user and first.uid != user.uid:
            breaks = "the second group could not be created, and both users would share group files"
            blamed = "gid" if "gid" in user.model_fields_set else "uid"
            report.bad((user, blamed), f"is also the gid of {report.place(first)}", breaks, "change one of the gids")
        breaks, fix = "the nodes would not know its gid", "write tailrack:groups: [{name: vision, gid: 7001}]"
        valid = [group.name for group in groups]
        check_known(user, "groups", valid, "is no group of tailrack:groups", breaks, report, fix)
        check_once(user, "groups", report)
        _check_notify(user, stack.config.job_reports, channels, report)
    breaks = "each user has a group of the user's name, so one group would get two numbers"
    check_unique(groups, "name", "is also the name of {}", breaks, report, "rename the group", names)
    places = {gid: report.place(user) for gid, user in gids.items()}
    breaks = "both would own each other's files"
    check_unique(groups, "gid", "is also the gid of {}", breaks, report, "change the group's gid", places)
    _check_keys(users, stack.config.github_keys, report)
    breaks, fix = "one login would open two accounts", "give each user another"
    check_unique(users, "oidc", "is also the identity of {}", breaks, report, fix)
    named = [user for user in users if user.oidc is not None]
    for user in named if stack.config.oidc is None else ():
        fix = "write issuer, client_id and checksums there, or remove oidc from the user"
        report.add((user, "oidc"), "is set without tailrack:oidc", "the user could not log in with it", fix)
    if stack.config.oidc and not named:
        report.warn(child_path(ROOT, "oidc"), "has no effect, because no user has oidc; remove it")


def _check_keys(users: Sequence[User], written: Mapping[str, Sequence[str]], report: Report) -> None:
    """Report keys and accounts of two users, and users without recorded keys. Warn about accounts that no user has."""
    keys: dict[tuple[str, ...], str] = {}  # the place of each, without its comment
    breaks, fix = "one key would open two accounts", "give each user another"
    accounts = check_unique(users, "github", "is also the account of {}", breaks, report, fix)
    for user in users:
        for index, text in enumerate(user.keys):
            place = report.at(user, "keys", index).removeprefix(ROOT)
            if (other := keys.setdefault(tuple(text.split()[:2]), place)) != place:
                fix = "give each user another key, and write it once"
                report.bad((user, "keys", index), f"is also {other}", _TWO_LOGINS, fix)
    path = child_path(ROOT, "github_keys")
    for user in users:
        if (name := user.github) is None:
            continue
        place = report.place(user)
        if name not in written and accounts[name.lower()] == place:
            problem = f"the keys of {report.value(report.at(user, 'github'), name)} are not in tailrack:github_keys"
            report.add((user, "github"), problem, "the user could not log in with them", _COMMAND)
        for index, text in enumerate(written.get(name, ())):
            key_path = child_path(child_path(path, name), index)
            if not (other := keys.setdefault(tuple(text.split()[:2]), place)).startswith(place):
                problem = f"{report.value(key_path, text)} is also a key of {other.partition('.')[0]}"
                report.add(key_path, problem, _TWO_LOGINS, "give each user another key")
    for name in written.keys() - {user.github for user in users}:
        report.warn(child_path(path, name), "has no effect, because no user has it as github; remove it")


def _check_notify(user: User, reports: JobReports | None, channels: Collection[str], report: Report) -> None:
    for receiver in user.notify:
        if reports is None:
            problem, fix = "is set without tailrack:job_reports", "write that section, or remove notify"
        elif "@" in receiver and not reports.mail:
            problem, fix = "is a mail address, and tailrack:job_reports has no mail server", "write mail there"
        elif "@" not in receiver and receiver not in channels:
            problem = "is no channel of tailrack:job_reports"
            fix = suggest(receiver, channels) if channels else "add the channel there, or write a mail address"
        else:
            continue
        path = report.at(user, "notify")
        report.add(path, f"{report.value(path, receiver)} {problem}", "the user would get no report", fix)
