"""The training benchmark as a step of a stack: what it is told, when it is taken anew, and what the stack outputs."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from components.roles.program import command_line
from components.validation.job_files import training_files
from stacks.config import parse
from tests.unit.configs import LAB, refused
from tests.unit.recorded import Build

STEP = "validate-training"


def with_training(config: dict[str, Any], **training: Any) -> dict[str, Any]:
    made = copy.deepcopy(config)
    made["validation"]["training"] = training
    return made


def test_it_trains_on_all_nodes_with_the_examples_program_as_a_user(build: Build, lab_config: dict[str, Any]) -> None:
    header = build(with_training(lab_config, steps=7, warmup=2)).values(STEP)
    assert (header["scope"], header["run_as"]) == ("training_benchmark", "ada")
    plan = json.loads(header["plan"])
    assert plan["sites"].keys() == plan["gpus"].keys()
    assert plan["sites"].keys() >= {"a1", "b1"}
    assert header["driver"] == command_line("measure-training")
    files = training_files()
    assert files.keys() == {"benchmark.py", "ranks.py"}
    compile(files["benchmark.py"], "benchmark.py", "exec")
    assert '"$SLURM_SUBMIT_DIR/benchmark.py" 2 7' in plan["job"]
    assert "--container-image" not in plan["job"]


def test_steps_and_rerun_repeat_the_training_but_floors_do_not(build: Build, lab_config: dict[str, Any]) -> None:
    before = build(with_training(lab_config))
    other_floor = build(with_training(lab_config, floor_images_per_second=3, time_limit_minutes=20))
    assert other_floor[STEP].inputs["triggers"] == before[STEP].inputs["triggers"]
    assert build(with_training(lab_config, steps=50))[STEP].inputs["triggers"] != before[STEP].inputs["triggers"]
    again = with_training(lab_config)
    again["validation"]["rerun"] = "once more"
    assert build(again)[STEP].inputs["triggers"] != before[STEP].inputs["triggers"]


def test_the_training_output_contains_the_jobs_results_and_a_verdict(build: Build, lab_config: dict[str, Any]) -> None:
    missing = {
        "state": "FAILED", "job_id": 7, "exit_code": 3, "seconds": 3, "nodes": ["a1"],
        "output": "tailrack-training-missing a1\n",
    }  # fmt: skip
    stack = build(with_training(lab_config), answers={STEP: missing})
    assert stack.outputs["training"]["verdict"] == "INCONCLUSIVE"
    assert "PyTorch is missing on a1" in stack.outputs["training"]["reason"]
    assert stack.outputs["training"]["images_per_second"] is None


@pytest.mark.parametrize(
    ("training", "words"),
    [
        ({"image": "pytorch"}, "validation.training.image: 'pytorch' without a section containers"),
        ({"python": "bin/python"}, "validation.training.python: 'bin/python' is no absolute path"),
        ({"python": "/a b/python"}, "validation.training.python: '/a b/python' contains a blank"),
        ({"floor_images_per_second": -1}, "validation.training.floor_images_per_second: -1 is not"),
        ({"floor_images_per_second": "fast"}, "validation.training.floor_images_per_second: 'fast' is not"),
        ({"steps": 1}, "validation.training.steps: 1 is not a whole number from 5 to 1000"),
        ({"nodes": ["nobody"]}, "validation.training.nodes[0]: 'nobody' is not a node that runs jobs"),
        ({"gpus": 2}, "validation.training.gpus"),
    ],
)
def test_the_config_rejects_an_impossible_training(training: dict[str, Any], words: str) -> None:
    config = copy.deepcopy(LAB)
    config["validation"] = {**config.get("validation", {}), "training": training}
    assert words in str(refused(parse, config, base_dir=Path()))
