"""Replace errors of the Pulumi CLI itself by one sentence with the remedy.

The CLI's own errors are several lines long, and name neither the file nor the remedy.
"""

from __future__ import annotations

import re

# Patterns of the CLI's errors (3.260; pkg/secrets/passphrase, pkg/resource/stack), each with our text.
_MEANINGS = (
    (
        r"passphrase must be set with",
        "no passphrase: set PULUMI_CONFIG_PASSPHRASE_FILE (or PULUMI_CONFIG_PASSPHRASE)",
    ),
    (
        r"incorrect passphrase",
        "the passphrase does not decrypt the state of stack {stack}; set PULUMI_CONFIG_PASSPHRASE_FILE (or "
        "PULUMI_CONFIG_PASSPHRASE) to the passphrase that the stack was created with",
    ),
    (
        r"malformed (state|secret) value|unmarshalling (passphrase )?state|cipher: message authentication failed",
        "a secret in the state of stack {stack} is damaged or was encrypted with another passphrase; restore a copy of "
        "the state: `pulumi stack import --file COPY` (the CLI keeps copies in .pulumi/backups, beside the state)",
    ),
    (
        r"failed to load checkpoint: place \d+: (unexpected end of JSON|invalid character|json: cannot unmarshal)",
        "the state of stack {stack} is empty, cut off or no state: {state}; the CLI keeps the one before it beside it: "
        "run `cp {state}.bak {state}`, and then the same command again",
    ),
)


def explain(text: str, stack: str, state: str) -> str:
    """Return our text for an error of the CLI; the error itself if no pattern matches.

    state   the path of the stack's state in the backend
    """
    for pattern, meaning in _MEANINGS:
        if re.search(pattern, text):
            return meaning.format(stack=repr(stack), state=state)
    return text
