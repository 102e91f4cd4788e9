"""ClusterMAX, the audit of SemiAnalysis: a user runs it on the head node, and each check has the expected result.

The GPUs are device files and a fake nvidia-smi. docs/clustermax.md has the reason for each check that does not pass.
"""

import base64
import gzip
import json
import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.lab.cluster import ClusterUnderTest, MakeCluster, eventually
from tests.lab.clustermax_expected import OF_THE_HOST, expected
from tests.unit.fake_nvidia_smi import gpu, xml

Cluster = ClusterUnderTest
PACKAGES = ("cmax", "yaml", "prompt_toolkit", "wcwidth")
FAKE = """#!/bin/bash
# A fake.
case "$*" in
    '-q -x') cat /usr/local/share/fake.xml ;;
    --query-gpu=name\\ *) echo 'NVIDIA H200'; echo 'NVIDIA H200' ;;
    --query-gpu=driver_version\\ *) echo 580.178.04; echo 580.178.04 ;;
    --query-gpu=memory.total\\ *) echo 143771; echo 143771 ;;
    --query-gpu=temperature.gpu\\ *) echo 31; echo 30 ;;
    --query-gpu=power.draw\\ *) echo 76.2; echo 75.9 ;;
    '') echo '| NVIDIA-SMI 580.178.04   Driver Version: 580.178.04   CUDA Version: 13.0 |' ;;
    *) exit 2 ;;
esac
"""


@pytest.fixture(scope="module")
def cluster(make_cluster: MakeCluster) -> Cluster:
    """The head node and a1, which has two GPUs, with accounting."""
    made = make_cluster("clustermax", one_site=True)
    made.config["tailrack:accounting"] = {}
    made.config["tailrack:profiling"] = True
    # The audit looks for metrics of other users.
    made.config["tailrack:monitoring"] = {}
    made.up_ok()
    made.give_gpus("a1", (0, 1), FAKE, xml([gpu(0), gpu(1)]))
    return made


@pytest.fixture(scope="module")
def audit(cluster: Cluster) -> dict[str, Any]:
    return audit_of(cluster, "salloc -Q -p gpu -N1 --exclusive --gpus=2")


def audit_of(cluster: Cluster, job: str) -> dict[str, Any]:
    """Return the audit's result as ada on the head node, in a job with a GPU node. Without it, cmax checks less."""
    for package in PACKAGES:
        spec = find_spec(package)
        assert spec, f"{package} is not installed: run `make setup-dev`"
        cluster.give("ada", Path(str(spec.origin)).parent)
    program = base64.b64encode(Path(__file__).with_name("audit_on_head.py").read_bytes()).decode()
    cluster.run_as("ada", "head", f"mkdir audit; mv {' '.join(PACKAGES)} audit; base64 -d >audit/run.py <<<{program}")
    stdout = cluster.run_as("ada", "head", f"cd audit; {job} python3 run.py .", 300)
    if copy := os.environ.get("TAILRACK_CLUSTERMAX_RESULT"):
        Path(copy).write_text(stdout, encoding="utf-8")
    result: dict[str, Any] = json.loads(stdout)
    return result


def test_each_check_has_the_expected_result_and_one_that_changes_is_named(audit: dict[str, Any]) -> None:
    checks = {check["key"]: check for check in audit["checks"]}
    wanted = expected()
    assert not checks.keys() ^ wanted.keys(), "clustermax has other checks: add them to tests/fixtures/clustermax.json"
    changed = {
        key: f"{key} is {check['status']} instead of {wanted[key]}: {check['observed']} {check['assessment']}"
        for key, check in checks.items()
        if check["status"] != wanted[key]
    }
    print("\n".join(changed.values()))
    unexpected = [text for key, text in changed.items() if key not in OF_THE_HOST]
    assert not unexpected, "\n".join([*unexpected, "correct tests/fixtures/clustermax.json and docs/clustermax.md"])


def test_the_audit_reads_the_gpu_node_and_its_gpus_by_a_job_of_the_user(audit: dict[str, Any]) -> None:
    facts = audit["values"]["audit_data"]
    assert facts["software"]["workerNode"] == facts["containers"]["workerNode"] == "a1"
    assert (facts["gpus"]["total"], facts["gpus"]["model"]) == (2, "NVIDIA-H200")
    assert facts["healthChecks"]["program"] == "/usr/local/sbin/tailrack-nhc"


def test_the_audit_tries_one_outgoing_call_and_gets_no_answer(audit: dict[str, Any]) -> None:
    assert audit["calls"] == ["curl -sf --max-time 10 https://ipinfo.io/json"]
    assert not audit["values"]["audit_data"]["serverLocation"]["externalIp"]


CHANGELOG = "/usr/share/doc/slurmd/changelog.Debian.gz"
HOLE = "note for a1: versions: Slurm "


def give_changelog(cluster: Cluster, text: str) -> None:
    packed = base64.b64encode(gzip.compress(text.encode())).decode()
    cluster.run(
        "a1", f"mkdir -p {CHANGELOG.rpartition('/')[0]}; base64 -d >{CHANGELOG} <<<{packed}; tailrack-nhc --wait"
    )


def test_a_slurm_with_a_published_hole_is_a_note_that_every_user_sees_and_takes_no_node_out(cluster: Cluster) -> None:
    assert "note" not in cluster.run_as("ada", "head", "tailrack nodes")
    give_changelog(cluster, "slurm-wlm (24.11.5-4) unstable; urgency=medium\n  * New release.\n")
    eventually(lambda: HOLE in cluster.run_as("ada", "head", "tailrack nodes"), 20, "the note")
    shown = cluster.run_as("ada", "head", "tailrack nodes")
    assert "which closes CVE-2026-65107 (https://github.com/SchedMD/slurm/releases/" in shown
    assert "nodes take work" in shown
    give_changelog(cluster, "slurm-wlm (24.11.5-4+deb13u1) trixie-security; urgency=high\n  * Fix CVE-2026-65107.\n")
    eventually(lambda: HOLE not in cluster.run_as("ada", "head", "tailrack nodes"), 20, "the note is gone")
    cluster.run("head", "scontrol update nodename=a1 comment='rack 7'")
    give_changelog(cluster, "slurm-wlm (24.11.5-4) unstable; urgency=medium\n")
    assert "rack 7" in cluster.run("head", "scontrol show node a1")
    cluster.run("head", "scontrol update nodename=a1 comment=")
    cluster.run("a1", f"rm {CHANGELOG}")


def test_profilers_are_allowed_on_the_gpu_node_alone_and_undone_with_the_config(cluster: Cluster) -> None:
    option, paranoid = "/etc/modprobe.d/tailrack-profiling.conf", "/proc/sys/kernel/perf_event_paranoid"
    before = cluster.run("a1", f"cat {paranoid}")
    assert "options nvidia NVreg_RestrictProfilingToAdminUsers=0" in cluster.run("a1", f"cat {option}")
    cluster.run("head", f"test ! -e {option}")
    del cluster.config["tailrack:profiling"]
    cluster.up_ok()
    cluster.run("a1", f"test ! -e {option}")
    # A container's kernel is its host's.
    assert cluster.run("a1", f"cat {paranoid}") == before
