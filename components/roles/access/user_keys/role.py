"""SSH keys of the config (`tailrack:users[].keys`), with which users log in to every machine.

Those recorded from GitHub (`tailrack:github_keys`) are among them. They are in root's folder, so a removed key opens
nothing after the next `up`, and root opens nothing in a home. opkssh adds identities of a provider (`tailrack:oidc`);
it works with sshd and PAM, which Tailscale's SSH goes around. Logins have the same limits as with a key in a home (role
pam_slurm_adopt).
"""

from components.roles.access.users.settings import GithubKeys, User
from components.roles.cluster_settings import ClusterSettings
from components.roles.role import Role, Value


def role(settings: ClusterSettings) -> Role:
    """Return the role, also without keys in the config: its phases then remove them.

    Each line of `user_keys_lines` is a user's name and a key as in authorized_keys. The others are empty without
    identities: the line of opkssh's `providers`, those of its `auth_id`, and its programs (`Program` in host.py).
    """
    lines = [f"{user.name} {key}" for user in settings.users for key in _keys(user, settings.github_keys)]
    values: dict[str, Value] = {"lines": lines, "provider": "", "identities": [], "programs": []}
    if (oidc := settings.oidc) and (users := [user for user in settings.users if user.oidc]):
        values["provider"] = f"{oidc.issuer} {oidc.client_id} {oidc.valid_for}"
        values["identities"] = [f"{user.name} {user.oidc} {oidc.issuer}" for user in users]
        values["programs"] = [
            (file.rpartition("-")[2], digest, f"{oidc.artifacts}/{file}") for file, digest in oidc.checksums.items()
        ]
    return Role("user_keys", after=("users", "ssh_trust"), values=values)


def _keys(user: User, recorded: GithubKeys) -> list[str]:
    """Return the user's keys, each once: a person may have written one that is at GitHub too."""
    own = {tuple(key.split()[:2]) for key in user.keys}
    more = recorded.get(user.github, ()) if user.github else ()
    return [*user.keys, *(key for key in more if tuple(key.split()[:2]) not in own)]
