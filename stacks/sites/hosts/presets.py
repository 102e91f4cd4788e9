"""Log-in accounts of providers' machines (docs/providers.md lists their other properties)."""

from collections.abc import Mapping

# The account of a provider's images, with password-less sudo; None if there is no common one.
PRESETS: Mapping[str, str | None] = {
    "generic": None,
    "lambda": "ubuntu",
    "paperspace": "paperspace",
    "nebius": "ubuntu",
    "crusoe": "ubuntu",
    "dgx": None,
    "runpod": "root",
    "vast": "root",
}
