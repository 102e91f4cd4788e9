"""The section `groups`: groups of users, and checks for clashes with users and for unknown names."""

from collections.abc import Sequence
from functools import partial
from typing import Annotated

from pydantic import AfterValidator, Field

from components.roles.users.settings import Id, account_name
from components.settings.draft import Draft, suggest
from components.settings.problems import ROOT, Report, child_path
from components.settings.section import Section, key


def _group_name(value: str) -> str:
    return account_name(value, "the group's members would get the rights of the system's group")


class Group(Section):
    """A group of users, the same on every node, with a shared folder."""

    name: Annotated[str, Field(max_length=32), AfterValidator(_group_name)] = key(
        "the group's name; its folder is `groups/NAME` on the share",
        wants="a group name of at most 32 characters",
        breaks="the nodes could not create the group",
        fix="write another name such as vision",
    )
    gid: Id = key(
        "group id (gid), the same on every node",
        wants="a number from 1000 up",
        breaks="the group's files on the share would belong to a system group or to no one",
        fix="write one from 1000 to 59999 that no group on the nodes uses",
    )


def check_groups(groups: Sequence[Draft], users: Sequence[Draft], report: Report) -> None:
    """Report groups that share a name or number with another group or a user, and unknown groups of users."""
    names = {name: user.path.removeprefix(ROOT) for user in users if (name := user.text("name")) is not None}
    gids = {
        gid: user.path.removeprefix(ROOT)
        for user in users
        if (gid := user.whole("gid" if "gid" in user.raw else "uid")) is not None
    }
    for group in groups:
        place, name, gid = group.path.removeprefix(ROOT), group.text("name"), group.whole("gid")
        if name is not None and (other := names.setdefault(name, place)) != place:
            problem = f"{report.value(group.path_of('name'), name)} is also the name of {other}"
            breaks = "each user has a group of the user's name, so one group would get two numbers"
            report.add(group.path_of("name"), problem, breaks, "rename the group")
        if gid is not None and (other := gids.setdefault(gid, place)) != place:
            problem = f"{report.value(group.path_of('gid'), gid)} is also the gid of {other}"
            breaks = "both would own each other's files"
            report.add(group.path_of("gid"), problem, breaks, "change the group's gid")
    valid = {name for group in groups if (name := group.text("name")) is not None}
    for user in users:
        written = user.value("groups")
        for index, name in enumerate(written if isinstance(written, tuple) else ()):
            _check_member(user, index, name, written, valid, report)


def _check_member(user: Draft, index: int, name: str, written: object, valid: set[str], report: Report) -> None:
    path = child_path(user.path_of("groups"), index)
    if isinstance(written, tuple) and name in written[:index]:
        problem = f"{report.value(path, name)} is in the list twice"
        report.add(path, problem, "one of the two would have no effect", "write each group once")
    elif name not in valid:
        problem = f"{report.value(path, name)} is no group of tailrack:groups"
        fix = partial(suggest, name, valid) if valid else "write tailrack:groups: [{name: vision, gid: 7001}]"
        report.add(path, problem, "the nodes would not know its gid", fix)
