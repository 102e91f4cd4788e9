"""Whom the machines of each provider let log in (docs/providers.md has what else is known of them)."""

from collections.abc import Mapping

# The account that a provider's images open, with password-less sudo; None where there is no common one.
PRESETS: Mapping[str, str | None] = {
    "generic": None,
    "lambda": "ubuntu",
    "paperspace": "paperspace",
    "nebius": "ubuntu",
    "crusoe": "ubuntu",
    "dgx": None,
    "runpod": "root",
}
