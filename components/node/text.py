"""Untrusted text of programs, made safe to show."""

from __future__ import annotations


def printable(text: str, most: int) -> str:
    """Return the printable ASCII characters of a text, up to a number of them."""
    return "".join(letter for letter in text if " " <= letter <= "~")[:most]
