"""SSH keys of the config (`tailrack:users[].keys`), with which users log in to every machine.

They are in root's folder, so a removed key opens nothing after the next `up`, and root opens nothing in a home. Logins
have the same limits as with a key in a home (role pam_slurm_adopt).
"""

from __future__ import annotations

from components.roles.cluster_settings import ClusterSettings
from components.roles.role import Role


def role(settings: ClusterSettings) -> Role:
    """Return the role, also without keys in the config: its phases then remove them.

    Each line of `USER_KEYS_LINES` is a user's name and a key as in authorized_keys.
    """
    lines = [f"{user.name} {key}" for user in settings.users for key in user.keys]
    return Role("user_keys", after=("users", "ssh_trust"), values={"USER_KEYS_LINES": lines})
