"""Show text of machines and users safely: control characters become visible, so that they move no cursor."""

import codecs
import subprocess
import sys
import threading
from collections.abc import Iterable, Sequence
from typing import IO, Any, TextIO

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment


def one_line(text: str) -> str:
    """Return the text on one line, with a space for each line break or tab, and `\\x1b` and the like for the rest.

    The rest is every unprintable character: control characters, marks of text direction, lone surrogates.
    """
    return text if text.isprintable() else "".join(map(_shown, text))


def lines(text: str) -> str:
    """Return the text with each line converted by `one_line`."""
    return "\n".join(map(one_line, text.split("\n")))


def _shown(character: str) -> str:
    if character.isprintable():
        return character
    return " " if character.isspace() else character.encode("unicode_escape").decode()


class Terminal(Console):
    """The console of all commands: stderr, without markup, with each text converted by `lines`.

    Callers convert foreign text with `one_line` before they put it into a sentence or a cell, so that it cannot imitate
    a separate line. This class is the second defence.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(stderr=True, markup=False, highlight=False, **options)
        if not self.is_terminal and "width" not in options:
            self.width = 120  # for logs

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Convert each text on its way to the screen; leave rich's own control sequences."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(lines(segment.text), segment.style)


def run_shown(command: Sequence[str], *, always: bool = True) -> int:
    """Run a command, print its output as it comes, converted by `lines`, and return its exit status.

    always   convert output to files and pipes too; without it, they get the exact bytes
    """
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE if always or sys.stdout.isatty() else None,
        stderr=subprocess.PIPE if always or sys.stderr.isatty() else None,
    ) as process:
        streams = ((process.stdout, sys.stdout), (process.stderr, sys.stderr))
        threads = [threading.Thread(target=_pass_on, args=(source, target)) for source, target in streams if source]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return process.returncode


def _pass_on(source: IO[bytes], target: TextIO) -> None:
    decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
    while chunk := source.read1(65536):  # type: ignore[attr-defined]
        _write(target, decoder.decode(chunk))
    _write(target, decoder.decode(b"", final=True))


def _write(target: TextIO, text: str) -> None:
    encoding = target.encoding or "utf-8"
    target.write(lines(text).encode(encoding, "backslashreplace").decode(encoding))
    target.flush()
