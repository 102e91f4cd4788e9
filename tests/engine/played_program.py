"""A fake of the program on machines: it keeps what it was started with, and touches one folder alone."""

import hashlib
import io
import zipfile
from pathlib import Path

from components.node import install
from components.roles.program import Program
from components.steps import command_line, delivery, step

_START = "import sys\nfrom components.node.step.main import main\nsys.exit(main(sys.argv[2:], sys.stdin.buffer))\n"
# Its log has a line for each step: the arguments and the value WORD. The plan's text BODY is Python that it runs.
_MAIN = """
import json, os

def main(arguments, stream):
    plan_line, request_line = stream.read().decode().split("\\n", 1)
    texts, values = json.loads(plan_line)["texts"], json.loads(request_line)["values"]
    log = "{folder}/log"
    with open(log, "a") as file:
        file.write(" ".join(arguments) + ": " + values["WORD"] + "\\n")
    with open(log + ".env", "w") as file:
        file.write("\\n".join(sorted(os.environ)))
    with open(log + ".pwd", "w") as file:
        file.write(os.getcwd() + "\\n")
    exec(texts.get("BODY", ""))
    print(json.dumps({{"said": values["WORD"] + " " + str(len(arguments))}}))
"""


def play(folder: Path) -> None:
    """Let steps use the fake from now on, installed in a folder."""
    texts = {
        "__main__.py": _START,
        "components/node/install.py": Path(install.__file__).read_text().replace(install.FOLDER, str(folder)),
        "components/node/step/main.py": _MAIN.format(folder=folder),
    }
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for path, text in texts.items():
            archive.writestr(zipfile.ZipInfo(path), text)
    fake = Program(buffer.getvalue())
    text = command_line.START_TEXT.replace(install.FOLDER, str(folder))
    vars(step).update(program=lambda: fake)
    vars(delivery).update(program=lambda: fake, START_TEXT=text)
    vars(command_line).update(START_DIGEST=hashlib.sha256(text.encode()).hexdigest())
