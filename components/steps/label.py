"""What a step is called, the machine it runs on, and its words for people; carried by the step's own command.

An engine tells of a resource by its URN and its inputs. The label stands in front of the command as words of the
shell's no-op `:`, so that whoever shows progress or a failure reads it there and guesses nothing from a name.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

_NO_OP = ":"
_END = "; "
# A word as shlex.join writes it. Of a thousand hosts there are thousands of labels to read, and shlex goes through each
# character of them.
_PIECE = "'[^']*'" + '|"[\']"'
_WORD = rf"([\w@%+=:,./-]+|(?:{_PIECE})+)"
_WRITTEN = re.compile(f"{_NO_OP} {_WORD} {_WORD} {_WORD}{_END}", re.ASCII)


@dataclass(frozen=True)
class StepLabel:
    """One step.

    name      the resource's name and the name of its log (`b1-register`)
    machine   name of the machine it runs on (`head`); empty where it runs on the operator's own
    text      what it does, in a few words (`b1: register on the head node`)
    """

    name: str
    machine: str
    text: str

    def on(self, command: str) -> str:
        """Return the command with this label in front."""
        return shlex.join([_NO_OP, self.name, self.machine, self.text]) + _END + command

    @classmethod
    def of(cls, command: str) -> StepLabel | None:
        """Return the label in front of a command; None where there is none."""
        if written := _WRITTEN.match(command):
            return cls(*map(_unquoted, written.groups()))
        words = shlex.shlex(command, posix=True, punctuation_chars=True)
        words.whitespace_split = True
        try:
            first, name, machine, text, end = (next(words, None) for _ in range(5))
        except ValueError:  # a quote without its end
            return None
        if first != _NO_OP or end != _END.strip() or name is None or machine is None or text is None:
            return None
        return cls(name, machine, text)


def _unquoted(word: str) -> str:
    """Return what a word of shlex.join means."""
    return "".join(piece[1:-1] for piece in re.findall(_PIECE, word)) if word[0] in "'\"" else word
