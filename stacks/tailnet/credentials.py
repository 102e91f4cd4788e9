"""The credentials of Tailscale's API in a config."""

from components.roles.network.tailnet.settings import CREDENTIALS, WayToTailnet


def credentials(settings: WayToTailnet) -> dict[str, str]:
    """Return the credentials in the config by name, as plain text."""
    values = {name: getattr(settings, name) for name in CREDENTIALS}
    return {
        name: value if isinstance(value, str) else value.get_secret_value()
        for name, value in values.items()
        if value is not None
    }
