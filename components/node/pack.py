"""Pack modules, the modules that they import and the data of both into one zip archive, which Python runs.

The operator packs the program for machines (components/roles/program.py), and the head node the one that jobs bring
along (components/validation/job_files.py). Both read the modules from the folder that contains this one.
"""

import io
import json
import re
import zipfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Python's own parser takes 0.4 s for all modules, in each command of the operator.
_IMPORT = re.compile(r"^ *from (components[\w.]*) import (\([^()]*\)|.*)", re.MULTILINE)
_DATA = re.compile(r'get_data\("([\w.]*)", "(.*?)"\)')
# Every archive has these: they run its commands.
_OWN = ("components.node.commands",)
_START = "import sys\nfrom components.node.commands import main\nsys.exit(main(sys.argv[1:]))\n"


def packed(commands: Mapping[str, str], modules: Sequence[str] = (), files: Sequence[str] = ()) -> bytes:
    """Return an archive, the same bytes wherever it is made.

    commands  the module of each command, by the command's name (commands.py)
    modules   more modules
    files     more files, as paths in the root folder
    """
    texts = dict(files_of((*_OWN, *(entry.partition(":")[0] for entry in commands.values()), *modules)))
    texts |= {path: (ROOT / path).read_text(encoding="utf-8") for path in files}
    texts |= {"__main__.py": _START, "components/commands.json": json.dumps(dict(commands), sort_keys=True)}
    buffer = io.BytesIO()
    # Not compressed: two versions of zlib make different archives of the same files.
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for path, text in sorted(texts.items()):
            info = zipfile.ZipInfo(path)
            info.external_attr = 0o100644 << 16
            archive.writestr(info, text)
    return buffer.getvalue()


@cache
def files_of(modules: tuple[str, ...]) -> Mapping[str, str]:
    """Return the texts, by path, of modules, their imports from components, and their data. Package files are empty."""
    texts: dict[str, str] = {}
    wanted = list(modules)
    while wanted:
        path = f"{wanted.pop().replace('.', '/')}.py"
        if path not in texts and (ROOT / path).is_file():
            texts[path] = (ROOT / path).read_text(encoding="utf-8")
            wanted += _imports(texts[path])
            data = [f"{package.replace('.', '/')}/{name}" for package, name in _DATA.findall(texts[path])]
            texts |= {file: (ROOT / file).read_text(encoding="utf-8") for file in data}
    packages = {f"{folder}/__init__.py": "" for path in texts for folder in Path(path).parents if folder.name}
    return dict(sorted({**packages, **texts}.items()))


@cache
def _imports(text: str) -> Sequence[str]:
    """Return the modules that a text imports from components, and imported names that may be modules."""
    found = [(module, word.split()) for module, names in _IMPORT.findall(text) for word in names.strip("()").split(",")]
    return [path for module, words in found if words for path in (module, f"{module}.{words[0]}")]
