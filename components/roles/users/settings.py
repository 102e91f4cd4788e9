"""People's accounts: the section `users`, its kinds of value, and what must not meet among users."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated

from pydantic import AfterValidator, Field

from components.settings.draft import Draft
from components.settings.problems import ROOT, Report
from components.settings.section import Section, key
from components.settings.types import Whole, refuse, words

# Users and groups of Debian's base-passwd and of packages that nodes install or clouds ship; "admin" is a
# group on Ubuntu. A user takes a group of its own name, so both kinds are one set.
RESERVED_USERS = words(
    """root daemon bin sys sync games man lp mail news uucp proxy www-data backup list irc gnats nobody nogroup
    adm tty disk kmem dialout fax voice cdrom floppy tape sudo audio dip operator src shadow utmp video sasl
    plugdev staff users input kvm render sgx crontab messagebus sshd ssh statd polkitd tss netdev admin wheel
    docker lxd munge slurm tailscale mysql postgres avahi ntp dnsmasq systemd-network systemd-resolve
    systemd-timesync systemd-journal systemd-coredump systemd-oom"""
)


def _user_name(value: str) -> str:
    if value in RESERVED_USERS or value.startswith("systemd-"):
        refuse(
            "is a name that Debian or a package on the nodes uses itself",
            "the system account would get this user's uid, home and key",
        )
    if not re.fullmatch(r"[a-z][a-z0-9_-]*", value):
        refuse("is not a name of lowercase letters, digits, '-' and '_' that starts with a letter")
    return value


UserName = Annotated[str, Field(max_length=32), AfterValidator(_user_name)]


def _id(value: int) -> int:
    if value == 65534:
        refuse("is the number of nobody", "files of every squashed root and unknown user would be this one's")
    if 60000 <= value <= 65535:
        refuse("lies in 60000-65535, which Debian and systemd keep for accounts they make themselves")
    return value


Id = Annotated[Whole, Field(ge=1000, le=4294967293), AfterValidator(_id)]


class User(Section):
    """A person's account, the same on every node."""

    name: UserName = key(
        "log-in name; the home is on the share",
        "a user name of at most 32 characters; the account could not be made on the nodes; write another name such "
        "as ada",
    )
    uid: Id = key(
        "user number, the same on every node",
        "a number from 1000 up; the user's files on the share would be a system account's, or nobody's; write one "
        "from 1000 to 59999 that no account on the nodes has",
    )
    gid: Id = key(
        "group number, the same on every node; left out, the uid",
        "a number from 1000 up; the user's files on the share would be a system group's, or nobody's; write one "
        "from 1000 to 59999 that no group on the nodes has, or leave gid out to have the uid",
        otherwise="the uid",
        default_factory=lambda data: data["uid"],
    )


def check_users(users: Sequence[Draft], logins: Mapping[str, str], report: Report) -> None:
    """Report users that share a name or number, or are an account that the program logs in with (`logins`: where)."""
    names: dict[str, str] = {}
    uids: dict[int, str] = {}
    gids: dict[int, str] = {}
    for user in users:
        place = user.path.removeprefix(ROOT)
        name, uid = user.text("name"), user.whole("uid")
        gid = user.whole("gid") if "gid" in user.raw else uid
        if name is not None:
            at = user.at("name")
            value = report.value(at, name)
            if names.setdefault(name, place) != place:
                what = f"{value} is the name of {names[name]} too"
                report.add(at, what, "one account would get the numbers of both", "give one of them another name")
            elif name in logins and name != "root":
                what = f"{value} is the account that the program logs in with at {logins[name]}"
                report.add(at, what, "its uid cannot change while it is logged in", "give the user another name")
        if uid is not None and uids.setdefault(uid, place) != place:
            at = user.at("uid")
            what = f"{report.value(at, uid)} is the uid of {uids[uid]} too"
            report.add(at, what, "the two would own each other's files", "give one of them another uid")
        elif gid is not None and gids.get(gid, place) != place:
            at = user.at("gid" if "gid" in user.raw else "uid")
            what = f"{report.value(at, gid)} is the gid of {gids[gid]} too"
            breaks = "the second group could not be made, and the two would share group files"
            report.add(at, what, breaks, "give one of them another gid")
        if gid is not None:
            gids.setdefault(gid, place)
