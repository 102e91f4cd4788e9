"""Mask secrets in messages, events, outputs and archives."""

import re
from collections.abc import Iterable

MASK = "[secret]"  # stands for a secret
_LOOKS_SECRET = re.compile(r"tskey-|PRIVATE KEY|://[^/]*@")
# Logs of other programs may contain secrets. A hostile machine may have written the text, so each pattern reads each
# character a bounded number of times. The text of a group stays.
_SUSPECTS = (
    r"(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
    r"tskey-[A-Za-z0-9_-]+",
    r"\bAKIA[0-9A-Z]{16}\b",
    r"(?i)\b((?:password|passphrase|secret|token|auth_?key|api_?key)[\"']?\s*[=:]\s*[\"']?)[^\s\"',;]{4,}",
    # Keys in base64: the munge key, a passphrase.
    r"(?<![A-Za-z0-9+/])[A-Za-z0-9+/]{120,}={0,2}",
)
# A run of characters that may contain a JSON Web Token, whose parts have dots between them, and the start of a token.
_RUN = re.compile(r"(?<![A-Za-z0-9_.-])[A-Za-z0-9_.-]{16,}")
_TOKEN = re.compile(r"\beyJ[A-Za-z0-9_-]{10}")
_LONGEST_PART = 12  # letters of a secret that a message may show


def looks_secret(text: str) -> bool:
    """Return whether a short text, such as a value of the config, contains a secret."""
    return bool(_LOOKS_SECRET.search(text))


def mask_values(text: str, secrets: Iterable[str]) -> str:
    """Return the text with these secrets masked."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, MASK) if secret else text
    return text


def mask_parts(text: str, secrets: Iterable[str]) -> str:
    """Return the text with these secrets masked, and all words that are a long part of one."""
    secrets = tuple(secrets)
    text = mask_values(text, secrets)
    words = {word for word in re.findall(r"[\w+/=.-]+", text) if len(word) > _LONGEST_PART}
    return mask_values(text, (word for word in words if any(word in secret for secret in secrets)))


def mask_suspects(text: str) -> str:
    """Return the text with everything masked that looks like a secret."""
    for pattern in _SUSPECTS:
        text = re.sub(pattern, lambda found: "".join(found.groups()) + MASK, text)
    return _RUN.sub(_mask_token, text)


def _mask_token(run: re.Match[str]) -> str:
    """Return a run of characters, masked if it contains a JSON Web Token (header.claims.signature)."""
    return MASK if any(map(_TOKEN.search, run[0].split(".")[:-2])) else run[0]
