"""The simple commands of a bash text, with their words, as far as a test needs them: which command names which path."""

from __future__ import annotations

import re
from collections.abc import Iterator

_HERE_DOCUMENT = re.compile(r"<<-?\s*(['\"]?)(\w+)\1([^\n]*)\n.*?^\t*\2$", re.MULTILINE | re.DOTALL)
# Words in front of a command.
_BEFORE = {"if", "then", "else", "elif", "while", "until", "do", "!", "{", "}", "time", "exec", "timeout", "within"}
_OPERATOR = re.compile(r"&>>|&>|>>|>&|<&|>\||<<<|[<>](?!\()|&&|\|\||;;|\|&|[;&|()\n]")
# The rest of a text in $'...'.
_ANSI = re.compile(r"(?:[^'\\]|\\.)*'", re.DOTALL)
_REDIRECTIONS = {"&>>", "&>", ">>", ">|", "<", ">"}


def commands(text: str) -> Iterator[list[str]]:
    """Yield each command as its words, without quotes; a redirection is two words, its operator and the file.

    Commands in substitutions, subshells, functions and blocks are among them; texts that another bash reads are words.
    """
    words: list[str] = []
    inner: list[str] = []
    for word, operator in _words(_HERE_DOCUMENT.sub(r"\3\n", text), inner):
        if not operator:
            words.append(word)
        elif word in _REDIRECTIONS:
            words.append(f"\0{word}")
        elif word in ("<<<", ">&", "<&"):
            words.append("\0")
        else:
            yield from _command(words)
            words = []
    yield from _command(words)
    for each in inner:
        if not each.startswith("("):  # a sum
            yield from commands(each)


def _command(words: list[str]) -> Iterator[list[str]]:
    while words and (words[0] in _BEFORE or re.fullmatch(r"[0-9]+[smh]?|-[ks]|\d", words[0])):
        words = words[1:]
    # What comes after one of these is no file.
    plain = [word for at, word in enumerate(words) if word != "\0" and not (at and words[at - 1] == "\0")]
    if plain:
        yield [word.removeprefix("\0") if word.startswith("\0") else word for word in plain]


def _words(text: str, inner: list[str]) -> Iterator[tuple[str, bool]]:
    """Words and operators in their order; texts of substitutions are added to a list."""
    at, word, begun = 0, "", False
    while at < len(text):
        found = _OPERATOR.match(text, at)
        letter = text[at]
        if letter == "\\":
            word, begun, at = word + (text[at + 1 : at + 2].replace("\n", "")), begun or text[at + 1] != "\n", at + 2
        elif letter in " \t" or found:
            if begun and not (found and found[0][0] in "<>" and word.isdigit()):
                yield word, False
            word, begun = "", False
            if found:
                yield found[0], True
            at += len(found[0]) if found else 1
        elif letter == "#" and not begun:
            at = text.find("\n", at) if "\n" in text[at:] else len(text)
        elif letter == "'":
            end = text.index("'", at + 1)
            word, begun, at = word + text[at + 1 : end], True, end + 1
        elif text.startswith("$'", at):
            quoted = _ANSI.match(text, at + 2)
            assert quoted, text[at : at + 80]
            word, begun, at = word + quoted[0][:-1], True, quoted.end()
        elif letter == '"':
            end_at = _end_of_quotes(text, at + 1)
            _substitutions(text[at + 1 : end_at], inner)
            word, begun, at = word + text[at + 1 : end_at], True, end_at + 1
        elif text.startswith(("$(", "<(", ">("), at):
            end_at = _end_of_parentheses(text, at + 2)
            inner.append(text[at + 2 : end_at])
            word, begun, at = word + text[at : end_at + 1], True, end_at + 1
        elif text.startswith("${", at):
            end_at = _end_of_braces(text, at + 2)
            word, begun, at = word + text[at : end_at + 1], True, end_at + 1
        else:
            word, begun, at = word + letter, True, at + 1
    if begun:
        yield word, False


def _substitutions(text: str, inner: list[str]) -> None:
    at = 0
    while (at := text.find("$(", at)) >= 0:
        end = _end_of_parentheses(text, at + 2)
        inner.append(text[at + 2 : end])
        at = end


def _end_of_quotes(text: str, at: int) -> int:
    while text[at] != '"':
        if text[at] == "\\":
            at += 2
        elif text.startswith("$(", at):
            at = _end_of_parentheses(text, at + 2) + 1
        elif text.startswith("${", at):
            at = _end_of_braces(text, at + 2) + 1
        else:
            at += 1
    return at


def _end_of_parentheses(text: str, at: int) -> int:
    depth = 1
    while True:
        if text[at] == "\\":
            at += 1
        elif text[at] == "'":
            at = text.index("'", at + 1)
        elif text[at] == '"':
            at = _end_of_quotes(text, at + 1)
        elif text.startswith("${", at):
            at = _end_of_braces(text, at + 2)
        elif text[at] in "()":
            depth += 1 if text[at] == "(" else -1
            if not depth:
                return at
        at += 1


def _end_of_braces(text: str, at: int) -> int:
    while text[at] != "}":
        if text[at] == "\\":
            at += 2
        elif text[at] == '"':
            at = _end_of_quotes(text, at + 1) + 1
        elif text.startswith("$(", at):
            at = _end_of_parentheses(text, at + 2) + 1
        elif text.startswith("${", at):
            at = _end_of_braces(text, at + 2) + 1
        else:
            at += 1
    return at
