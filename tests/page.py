"""Command blocks of a page of the docs, each with who runs it: a comment `<!-- run by: ada -->` above it says so."""

import re
from dataclasses import dataclass
from pathlib import Path

FIRST_CLUSTER = Path(__file__).parents[1] / "docs" / "first-cluster.md"
# By `run by`: in the checkout; there, on the head node; as the user, anywhere; as the user, where there are GPUs.
YOU, YOU_ON_HEAD, USER, USER_ON_GPUS = "you", "you, on desk", "ada", "ada, on GPUs"
_BLOCK = re.compile(r"(?:<!-- run by: ([^>]*?) -->\n)?```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A fenced block. `by` is empty where the page does not say who runs it; `section` is the heading above it."""

    by: str
    language: str
    text: str
    section: str


def blocks(page: Path) -> list[Block]:
    """All fenced blocks of a page, in their order."""
    text = page.read_text(encoding="utf-8")
    found = []
    for block in _BLOCK.finditer(text):
        headings = re.findall(r"^## (.+)$", text[: block.start()], re.MULTILINE)
        found.append(Block(block[1] or "", block[2], block[3], headings[-1] if headings else ""))
    return found
