"""The workflows: what runs in which order, with which key, for how long, on whose runner. GitHub has run none."""

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from tests.unit.configs import KEY_PAIR

PROJECT = Path(__file__).parents[3]
FILES = sorted((PROJECT / ".github/workflows").glob("*.yml"))
TEXTS = {file.stem: file.read_text(encoding="utf-8") for file in FILES}
JOBS: dict[str, dict[str, Any]] = {
    f"{name}/{job}": of for name, text in TEXTS.items() for job, of in yaml.safe_load(text)["jobs"].items()
}
ON_STACKS = {name: job for name, job in JOBS.items() if "environment" in job}
PREPARE = "./.github/actions/prepare"


def prepared(job: dict[str, Any]) -> dict[str, Any]:
    """What a job hands to the action that prepares it."""
    (found,) = (step["with"] for step in job["steps"] if step.get("uses") == PREPARE)
    return dict(found)


@pytest.mark.parametrize("name", ["preview/preview", "drift/drift"])
def test_a_preview_has_no_key_that_opens_machines(name: str) -> None:
    assert "ssh-key" not in prepared(JOBS[name])
    assert "TAILRACK_SSH_KEY" not in TEXTS[name.partition("/")[0]]


@pytest.mark.parametrize("name", ["up/clusters", "up/pools", "destroy/destroy"])
def test_jobs_on_machines_use_the_key_of_their_environment(name: str) -> None:
    assert JOBS[name]["environment"] == "production"
    assert prepared(JOBS[name])["ssh-key"] == "${{ secrets.TAILRACK_SSH_KEY }}"


def test_the_unapproved_job_has_its_own_environment_and_only_pools() -> None:
    job = JOBS["reap/reap"]
    assert job["environment"] == "reap", "an approval of production would be asked for every half hour"
    assert prepared(job)["ssh-key"] == "${{ secrets.TAILRACK_SSH_KEY }}"
    assert job["strategy"]["matrix"]["stack"] == "${{ fromJSON(vars.TAILRACK_BURST_STACKS) }}"
    assert job["steps"][-1]["run"] == "make reap"


def test_jobs_that_change_or_compare_a_stack_share_one_lock() -> None:
    groups = {name: job["concurrency"]["group"] for name, job in ON_STACKS.items() if name != "preview/preview"}
    assert {re.sub(r"\$\{\{ \w+\.stack \}\}", "STACK", group) for group in groups.values()} == {"stack-STACK"}
    assert not any(job["concurrency"]["cancel-in-progress"] for name, job in ON_STACKS.items() if name in groups)


def test_a_pool_waits_for_every_cluster() -> None:
    assert JOBS["up/pools"]["needs"] == ["order", "clusters"]
    assert "needs.clusters.result" in JOBS["up/pools"]["if"]
    same = {key: value for key, value in JOBS["up/pools"].items() if key not in ("needs", "if", "strategy")}
    assert same.items() <= JOBS["up/clusters"].items()


@pytest.mark.parametrize(
    ("stacks", "burst", "clusters", "pools"),
    [
        (["prod", "lambda-burst"], ["lambda-burst"], ["prod"], ["lambda-burst"]),
        (["prod", "lab"], [], ["prod", "lab"], []),
        (["prod"], ["gone"], ["prod"], []),
        (["burst"], ["burst"], [], ["burst"]),
    ],
)
def test_the_workflows_distinguish_clusters_and_pools(
    stacks: list[str], burst: list[str], clusters: list[str], pools: list[str], tmp_path: Path
) -> None:
    (step,) = JOBS["up/order"]["steps"]
    told = {"STACKS": json.dumps(stacks), "POOLS": json.dumps(burst), "GITHUB_OUTPUT": str(tmp_path / "output")}
    subprocess.run(["bash", "-euo", "pipefail", "-c", step["run"]], env={**os.environ, **told}, check=True)
    lines = (tmp_path / "output").read_text().splitlines()
    listed = {name: json.loads(value) for name, _, value in (line.partition("=") for line in lines)}
    assert listed == {"clusters": clusters, "pools": pools}
    # The words that the jobs are held back by.
    assert ("clusters=[]" in lines, "pools=[]" in lines) == (not clusters, not pools)


@pytest.mark.parametrize("name", sorted(name for name, job in JOBS.items() if "matrix" in job.get("strategy", {})))
def test_no_job_has_a_matrix_of_nothing(name: str) -> None:
    listed = re.fullmatch(r"\$\{\{ fromJSON\((\S+)\) \}\}", JOBS[name]["strategy"]["matrix"]["stack"])
    assert listed
    held_back = {f"fromJSON({listed[1]} || '[]')[0] != null", f"{listed[1]} != '[]'"}
    assert any(words in JOBS[name]["if"] for words in held_back)


def test_the_template_calls_each_workflow_with_its_inputs_and_permissions() -> None:
    callers = sorted((PROJECT / "templates/github/.github/workflows").glob("*.yml"))
    called = {name.partition("/")[0] for name in ON_STACKS}
    assert {file.stem for file in callers} == called
    for file in callers:
        (job,) = yaml.safe_load(file.read_text(encoding="utf-8"))["jobs"].values()
        own = yaml.safe_load(TEXTS[file.stem])
        assert job["uses"] == f"OWNER/tailrack/.github/workflows/{file.name}@{job['with']['release']}"
        assert job["with"].keys() == own[True]["workflow_call"]["inputs"].keys()  # YAML's `on` is true
        assert job["permissions"] == {
            key: of for one in own["jobs"].values() for key, of in one.get("permissions", {}).items()
        }


def test_the_callers_files_come_in_and_its_programs_and_links_stay_out(tmp_path: Path) -> None:
    calling = tmp_path / ".stacks"
    calling.mkdir()
    for name in ("Pulumi.prod.yaml", "rack.csv", "known_hosts", "yaml.py", "Makefile", "Pulumi.yaml"):
        (calling / name).write_text("theirs")
    (calling / "link.csv").symlink_to("/etc/passwd")
    (tmp_path / "Pulumi.yaml").write_text("ours")
    steps = yaml.safe_load((PROJECT / PREPARE / "action.yml").read_text(encoding="utf-8"))["runs"]["steps"]
    subprocess.run(["bash", "-euo", "pipefail", "-c", steps[0]["run"]], cwd=tmp_path, check=True)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        "Pulumi.prod.yaml": "theirs",
        "rack.csv": "theirs",
        "known_hosts": "theirs",
        "Pulumi.yaml": "ours",
    }


def test_the_page_has_the_subject_of_every_environment() -> None:
    page = (PROJECT / "docs/pull-requests.md").read_text(encoding="utf-8")
    environments = {job["environment"] for job in ON_STACKS.values()}
    assert environments == set(re.findall(r"`repo:OWNER/REPO:environment:(\w+)`", page))


def test_the_key_goes_to_an_agent_and_into_no_file(tmp_path: Path) -> None:
    key = KEY_PAIR.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()).decode()
    told = {"SSH_KEY": key, "RUNNER_TEMP": str(tmp_path), "GITHUB_ENV": str(tmp_path / "env"), "HOME": str(tmp_path)}
    done = subprocess.run(
        [PROJECT / ".github/agent.sh"], env={**os.environ, **told}, check=True, capture_output=True, text=True
    )
    agent = dict(line.split("=", 1) for line in (tmp_path / "env").read_text().splitlines())
    agent["PATH"] = os.environ["PATH"]
    try:
        listed = subprocess.run(["ssh-add", "-L"], env=agent, check=True, capture_output=True, text=True)
        public = KEY_PAIR.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
        assert listed.stdout.startswith(public)
        assert {path.name for path in tmp_path.iterdir()} == {"env", "ssh-agent"}
        assert "PRIVATE" not in done.stdout + done.stderr + (tmp_path / "env").read_text()
    finally:
        subprocess.run(["ssh-agent", "-k"], env=agent, check=True, capture_output=True)
