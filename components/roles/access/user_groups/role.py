"""Groups of users (`tailrack:groups`), the same on every machine, and a shared folder for each on the share.

A default ACL makes new files of a folder writable by the group, whatever the umask of the program that creates them.
"""

from components.roles.cluster_settings import ClusterSettings
from components.roles.facts import list_of, matching
from components.roles.role import Role, SlurmKey

# Seconds for which slurmctld remembers the groups of a user whose job it starts; by default ten minutes.
_REMEMBERED_SECONDS = 15


def role(settings: ClusterSettings) -> Role:
    """Return the role, also without groups in the config: its phases then remove members.

    Each row of `user_groups_lines` is a group's name and gid, each of `user_groups_members` a group and a member.
    """
    members = sorted((name, user.name) for user in settings.users for name in user.groups)
    remembered = SlurmKey(f"{_REMEMBERED_SECONDS}", "jobs would get groups that their user has left or has not joined")
    return Role(
        "user_groups",
        after=("users",),
        on_pods=("check", "machine", "leave"),
        values={
            "lines": [(group.name, group.gid) for group in settings.groups],
            "members": [*members],
        },
        # Folders of groups that the config no longer has.
        facts={"head": {"left_groups": list_of(matching("[a-z][a-z0-9_-]{0,31}"))}},
        slurm_conf={"GroupUpdateTime": remembered} if settings.groups else {},
    )
