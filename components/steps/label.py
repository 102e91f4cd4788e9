"""What a step is called, the machine it runs on, and its words for people; carried by the step's own command.

An engine tells of a resource by its URN and its inputs. The label stands in front of the command as words of the
shell's no-op `:`, so that whoever shows progress or a failure reads it there and guesses nothing from a name.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

# Triggers contain a label, and an engine replaces a resource whose triggers differ. So a trigger keeps the words of the
# release that first had it, and people read the new ones.
FIRST_WORDS = {
    "copy setup scripts": "put its scripts in place",
    "copy setup scripts to the head node": "put its scripts in place on the head node",
}
_NEW_WORDS = {first: new for new, first in FIRST_WORDS.items()}
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

    def on_trigger(self, digest: str) -> str:
        """Return a trigger with this label in front, in the words that it was first written with."""
        subject, colon, words = self.text.rpartition(": ")
        first = StepLabel(self.name, self.machine, f"{subject}{colon}{FIRST_WORDS.get(words, words)}")
        return first.on(digest)

    @classmethod
    def of(cls, command: str) -> StepLabel | None:
        """Return the label in front of a command; None where there is none."""
        if written := _WRITTEN.match(command):
            return cls._written(*map(_unquoted, written.groups()))
        words = shlex.shlex(command, posix=True, punctuation_chars=True)
        words.whitespace_split = True
        try:
            first, name, machine, text, end = (next(words, None) for _ in range(5))
        except ValueError:  # a quote without its end
            return None
        if first != _NO_OP or end != _END.strip() or name is None or machine is None or text is None:
            return None
        return cls._written(name, machine, text)

    @classmethod
    def _written(cls, name: str, machine: str, text: str) -> StepLabel:
        subject, colon, words = text.rpartition(": ")
        return cls(name, machine, f"{subject}{colon}{_NEW_WORDS.get(words, words)}")


def _unquoted(word: str) -> str:
    """Return what a word of shlex.join means."""
    return "".join(piece[1:-1] for piece in re.findall(_PIECE, word)) if word[0] in "'\"" else word
