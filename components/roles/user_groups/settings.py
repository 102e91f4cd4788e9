"""The section `groups`: groups of users, and checks for clashes with users and for unknown names."""

from collections.abc import Sequence
from functools import partial
from typing import Annotated

from pydantic import AfterValidator, Field

from components.roles.users.settings import Id, User, account_name
from components.settings.problems import ROOT, Report, suggest
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


def check_groups(groups: Sequence[Group], users: Sequence[User], report: Report) -> None:
    """Report groups that share a name or number with another group or a user, and unknown groups of users."""
    names = {user.name: report.at(user).removeprefix(ROOT) for user in users}
    gids = {user.gid: report.at(user).removeprefix(ROOT) for user in users}
    for group in groups:
        place, name_path, gid_path = (
            report.at(group).removeprefix(ROOT),
            report.at(group, "name"),
            report.at(group, "gid"),
        )
        if (other := names.setdefault(group.name, place)) != place:
            problem = f"{report.value(name_path, group.name)} is also the name of {other}"
            breaks = "each user has a group of the user's name, so one group would get two numbers"
            report.add(name_path, problem, breaks, "rename the group")
        if (other := gids.setdefault(group.gid, place)) != place:
            problem = f"{report.value(gid_path, group.gid)} is also the gid of {other}"
            report.add(gid_path, problem, "both would own each other's files", "change the group's gid")
    valid = {group.name for group in groups}
    for user in users:
        for index, name in enumerate(user.groups):
            path = report.at(user, "groups", index)
            if name in user.groups[:index]:
                problem = f"{report.value(path, name)} is in the list twice"
                report.add(path, problem, "one of the two would have no effect", "write each group once")
            elif name not in valid:
                problem = f"{report.value(path, name)} is no group of tailrack:groups"
                fix = partial(suggest, name, valid) if valid else "write tailrack:groups: [{name: vision, gid: 7001}]"
                report.add(path, problem, "the nodes would not know its gid", fix)
