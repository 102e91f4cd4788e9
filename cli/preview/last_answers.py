"""Pass the last outputs of steps to the program of a preview (components/steps/results.py)."""

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from cli.pulumi.workspace import write_atomically
from cli.run_events import Made
from components.steps.command_line import is_step
from components.steps.label import StepLabel
from components.steps.results import LAST_ANSWERS


@contextmanager
def last_answers(resources: Iterable[Made], folder: Path) -> Iterator[None]:
    """Provide the outputs to programs run in this context, in a file in `folder`.

    Steps print no secrets. The outputs of other commands, such as the one that makes a key, are left out.
    """
    answers = {
        label.name: resource.stdout
        for resource in resources
        if is_step(resource.command) and (label := StepLabel.of(resource.command))
    }
    file = folder / "last-answers.json"
    write_atomically(file, json.dumps(answers))
    os.environ[LAST_ANSWERS] = str(file)
    try:
        yield
    finally:
        del os.environ[LAST_ANSWERS]
        file.unlink()
