"""What people see of texts that machines and users have written: words, which move no cursor and hide nothing."""

from __future__ import annotations

import codecs
import subprocess
import sys
import threading
from collections.abc import Iterable, Sequence
from typing import IO, TextIO

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment


def one_line(text: str) -> str:
    """The text on one line: a blank for a line break or a tab, `\\x1b` for an escape; so for all that is not printed.

    Not printed are control characters of both sets, marks that turn the direction of writing, halves of surrogates.
    """
    return text if text.isprintable() else "".join(map(_shown, text))


def lines(text: str) -> str:
    """The text, its lines kept, and each of them as `one_line` has it."""
    return "\n".join(map(one_line, text.split("\n")))


def _shown(letter: str) -> str:
    if letter.isprintable():
        return letter
    return " " if letter.isspace() else letter.encode("unicode_escape").decode()


class Terminal(Console):
    """Where all commands print: on stderr, with nothing in a text taken for markup, and no text but as `lines` has it.

    What is known to come from elsewhere is made one line where it is put into a sentence or a cell, so that it cannot
    pass for a line of its own. This is for what nobody thought of.
    """

    def __init__(self) -> None:
        super().__init__(stderr=True, markup=False)
        if not self.is_terminal:
            self.width = 120  # a log is as wide as its lines

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Every text, on its way to the screen; what rich itself says to the terminal is no text."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(lines(segment.text), segment.style)


def run_shown(words: Sequence[str], *, always: bool = True) -> int:
    """Run a command and pass on what it says, as `lines` has it, while it says it. Returns its exit status.

    always   not to a terminal alone; what goes into a file or a pipe is passed on byte by byte otherwise
    """
    with subprocess.Popen(
        words,
        stdout=subprocess.PIPE if always or sys.stdout.isatty() else None,
        stderr=subprocess.PIPE if always or sys.stderr.isatty() else None,
    ) as process:
        streams = ((process.stdout, sys.stdout), (process.stderr, sys.stderr))
        threads = [threading.Thread(target=_pass_on, args=(said, to)) for said, to in streams if said]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return process.returncode


def _pass_on(said: IO[bytes], to: TextIO) -> None:
    decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
    while chunk := said.read1(65536):  # type: ignore[attr-defined]
        _write(to, decoder.decode(chunk))
    _write(to, decoder.decode(b"", final=True))


def _write(to: TextIO, text: str) -> None:
    encoding = to.encoding or "utf-8"
    to.write(lines(text).encode(encoding, "backslashreplace").decode(encoding))
    to.flush()
