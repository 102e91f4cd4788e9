"""The label of a step: its name, its machine and a text for people, carried by the step's own command.

An engine reports a resource by its URN and its inputs. The label is in front of the command, as arguments of the
shell's no-op `:`, so progress and failures show it without guessing from a name.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

_NO_OP = ":"
_END = "; "
# A word as shlex.join writes it. A thousand hosts have thousands of labels, and shlex.split reads each character.
_PIECE = "'[^']*'" + '|"[\']"'
_WORD = rf"([\w@%+=:,./-]+|(?:{_PIECE})+)"
_WRITTEN = re.compile(f"{_NO_OP} {_WORD} {_WORD} {_WORD}{_END}", re.ASCII)


@dataclass(frozen=True)
class StepLabel:
    """The label of one step.

    name      the name of the resource and of its log (`b1-register`)
    machine   the machine that it runs on (`head`); empty for the operator's machine
    text      the text for people (`b1: register on the head node`)
    """

    name: str
    machine: str
    text: str

    def on(self, command: str) -> str:
        """Return the command with this label in front."""
        return shlex.join([_NO_OP, self.name, self.machine, self.text]) + _END + command

    @classmethod
    def of(cls, command: str) -> StepLabel | None:
        """Return the label in front of a command; None without a label."""
        if written := _WRITTEN.match(command):
            return cls(*map(_unquoted, written.groups()))
        tokens = shlex.shlex(command, posix=True, punctuation_chars=True)
        tokens.whitespace_split = True
        try:
            first, name, machine, text, end = (next(tokens, None) for _ in range(5))
        except ValueError:  # a quote is not closed
            return None
        if first != _NO_OP or end != _END.strip() or name is None or machine is None or text is None:
            return None
        return cls(name, machine, text)


def _unquoted(word: str) -> str:
    """Return the text that shlex.join quoted."""
    return "".join(piece[1:-1] for piece in re.findall(_PIECE, word)) if word[0] in "'\"" else word
