"""Check the requirements for every machine before anything is changed, and report its processors and memory."""

from __future__ import annotations

import os
import re

from components.node import files, kernel, passwd
from components.node.cgroup_limits import cpu_limit, memory_limit_mb
from components.node.failure import Failure
from components.node.packages import wait_for_cloud_init
from components.node.run import exists
from components.node.step.step import Step


def check(step: Step) -> None:
    """Refuse a machine that cannot be a node, and wait until it has started."""
    if not passwd.is_root():
        raise Failure(
            "the login is not root, and sudo did not give root",
            f"give the user password-less sudo (NOPASSWD:ALL) on {step.host}",
        )
    if not files.is_folder("/run/systemd/system"):
        _refuse_without_systemd(step.host)
    if not exists("apt-get"):
        raise Failure("this is not Debian or Ubuntu: there is no apt-get")
    wait_for_cloud_init(step.host)
    report_size(step)


def report_size(step: Step) -> None:
    """Report the processors and the memory that this machine may use."""
    cpus = len(os.sched_getaffinity(0))
    step.result("cpus", min(cpus, cpu_limit() or cpus))
    step.result("memory_mb", _memory_mb())


def _refuse_without_systemd(host: str) -> None:
    if not kernel.exists("/dev/net/tun"):
        raise Failure(
            "this is a container without systemd and without a TUN device, such as the pods of some clouds: the steps "
            "of other machines cannot set it up",
            f"write pods: true and accept_pod_risk: true for the site of {host}, after reading "
            "docs/providers/runpod.md; or rent a virtual machine or bare metal instead",
        )
    raise Failure(
        "systemd does not run here, and a node's daemons are systemd units",
        "use a machine or a container with systemd as its first process",
    )


def _memory_mb() -> int | None:
    found = re.search(r"^MemTotal: +(\d+)", kernel.read("/proc/meminfo"), re.MULTILINE)
    amounts = [int(found[1]) // 1024] if found else []
    if limit := memory_limit_mb():
        amounts.append(limit)
    return min(amounts, default=None)
