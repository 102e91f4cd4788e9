"""The last net: an error that nobody thought of is one sentence and a file to send, never a traceback on the screen."""

import os
import re
import tempfile
import traceback
from pathlib import Path

TRACEBACK = "Traceback (most recent call last)"
_FRAME = re.compile(
    r'^\s*File "[^"]*", line \d+.*|^(?:[\w.]*\.)?[A-Z]\w*(?:Error|Exception|Exit|Interrupt)\b', re.MULTILINE
)


def report(error: BaseException, folder: Path) -> str:
    """Write where an error came from into a file, and return the sentence that names it."""
    return report_text("".join(traceback.format_exception(error)), folder)


def report_text(text: str, folder: Path) -> str:
    """Write the frames of a traceback into a file of mode 0600 in `folder`, or in a temporary one; return the sentence.

    Only places in the code and kinds of error are kept: what an error says may quote a value of the config.
    """
    kept = "\n".join(found.strip() for found in _FRAME.findall(text)) + "\n"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(".txt", "bug-", folder)  # mode 0600
    except OSError:
        descriptor, name = tempfile.mkstemp(".txt", "tailrack-bug-")
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(kept)
    kind = kept.rstrip().rpartition("\n")[2] or "an error without a name"
    return f"this is a bug in tailrack ({kind}); please send {name} to its authors: no value of the config is in it"
