"""Turn an unexpected error into one sentence and a file to send, instead of a traceback on the screen."""

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
    """Write the origin of an error into a file, and return a sentence with the file's name."""
    return report_text("".join(traceback.format_exception(error)), folder)


def report_text(text: str, folder: Path) -> str:
    """Write the frames of a traceback into a file of mode 0600 in `folder`, or a temporary one; return the sentence.

    The file contains only code places and kinds of errors, because an error's text may quote a value of the config.
    """
    frames = "\n".join(frame.strip() for frame in _FRAME.findall(text)) + "\n"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(".txt", "bug-", folder)  # mode 0600
    except OSError:
        descriptor, name = tempfile.mkstemp(".txt", "tailrack-bug-")
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(frames)
    kind = frames.rstrip().rpartition("\n")[2] or "an error without a name"
    return f"this is a bug in tailrack ({kind}); please send {name} to its authors; it contains no value of the config"
