"""What the Pulumi CLI says of itself, told as this program tells of it: what it is, and what to do.

The one place where its words are read. Its own say neither which file is meant nor what to do, and go on for lines.
"""

from __future__ import annotations

import re

# What it says (3.260; pkg/secrets/passphrase, pkg/resource/stack), and what that means.
_MEANINGS = (
    (
        r"passphrase must be set with",
        "no passphrase: set PULUMI_CONFIG_PASSPHRASE_FILE (or PULUMI_CONFIG_PASSPHRASE)",
    ),
    (
        r"incorrect passphrase",
        "the passphrase does not open the state of stack {stack}; set PULUMI_CONFIG_PASSPHRASE_FILE (or "
        "PULUMI_CONFIG_PASSPHRASE) to the one that it was made with",
    ),
    (
        r"malformed (state|secret) value|unmarshalling (passphrase )?state|cipher: message authentication failed",
        "what is secret in the state of stack {stack} is damaged, or was sealed with another passphrase; put a copy of "
        "the state back: `pulumi stack import --file COPY` (the CLI keeps some in .pulumi/backups, where the state is)",
    ),
)


def meant(said: str, stack: str) -> str:
    """Return what the CLI's words mean; the words themselves where they are others."""
    for pattern, meaning in _MEANINGS:
        if re.search(pattern, said):
            return meaning.format(stack=repr(stack))
    return said
