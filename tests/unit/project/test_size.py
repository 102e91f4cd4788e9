"""The project's size: upper limits that may only fall, and one lower limit that may only rise."""

import ast
import re
import subprocess
from pathlib import Path

PROJECT = Path(__file__).parents[3]
# Lines of code are those that are neither blank, nor a comment, nor in a docstring.
MOST = {
    "lines of code": 48_200,
    "Python files in components/": 323,
    "lines of code in tests/": 51_360,
    "lines of bash": 1_679,
    "units": 25,
    "timers": 3,
    "names of values in components/": 58,
    "words in README.md and docs/": 27_927,
    "pages in docs/": 23,
}
LEAST_MEDIAN = 142  # lines of a file in components/


def tracked() -> dict[str, str]:
    """The text of each file that git tracks, by path."""
    listed = subprocess.run(["git", "ls-files"], cwd=PROJECT, capture_output=True, text=True, check=True).stdout
    files = {path: PROJECT / path for path in listed.splitlines()}
    return {path: file.read_text(encoding="utf-8", errors="replace") for path, file in files.items() if file.is_file()}


def code_lines(source: str) -> int:
    """The number of lines of code in a Python file."""
    docs: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            docs.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines = enumerate(map(str.strip, source.splitlines()), 1)
    return sum(bool(line) and not line.startswith("#") and number not in docs for number, line in lines)


def test_the_project_is_no_larger_than_its_limits() -> None:
    texts = tracked()
    python = {path: code_lines(text) for path, text in texts.items() if path.endswith(".py")}
    components = [path for path in python if path.startswith("components/")]
    shell = [
        text
        for path, text in texts.items()
        if not path.startswith(("tests/", "docs/", "examples/"))
        and (path.endswith((".sh", ".bash")) or re.match(r"#!/(usr/)?bin/(env )?(ba)?sh", text))
    ]
    unit = re.compile(r"\.(service|timer|socket|path)(\.j2)?$")
    units = [path for path in texts if unit.search(path) and not path.startswith("tests/")]
    pages = [path for path in texts if path.startswith("docs/") and path.endswith(".md")]
    names = {name for path in components for name in re.findall(r'"([A-Z][A-Z0-9]*_[A-Z0-9_]+)"', texts[path])}
    found = {
        "lines of code": sum(lines for path, lines in python.items() if not path.startswith("tests/")),
        "Python files in components/": len(components),
        "lines of code in tests/": sum(lines for path, lines in python.items() if path.startswith("tests/")),
        "lines of bash": sum(len(text.splitlines()) for text in shell),
        "units": len(units),
        "timers": sum(".timer" in path for path in units),
        "names of values in components/": len(names),
        "words in README.md and docs/": sum(len(texts[path].split()) for path in [*pages, "README.md"]),
        "pages in docs/": len(pages),
    }
    assert {name: size for name, size in found.items() if size > MOST[name]} == {}
    lines = sorted(len(texts[path].splitlines()) for path in components)
    assert lines[len(lines) // 2] >= LEAST_MEDIAN
