"""Check the requirements for a pod before anything is changed, and report its processors and memory."""

from __future__ import annotations

from components.node import files, passwd
from components.node.failure import Failure
from components.node.run import exists
from components.node.step.step import Step
from components.roles.machine.check import report_size
from components.roles.pod.paths import VOLUME


def pod_check(step: Step) -> None:
    """Refuse a machine that is no pod, or that has no volume."""
    if not passwd.is_root():
        raise Failure("the login is not root, and sudo did not give root", f"set user: root for {step.host}")
    if files.is_folder("/run/systemd/system"):
        raise Failure(
            "this machine has systemd, so it is no pod",
            f"move {step.host} to a site without pods: true, where jobs are confined and the share is mounted",
        )
    if not exists("apt-get"):
        raise Failure(
            "the image is not Debian or Ubuntu: there is no apt-get",
            f"start {step.host} from an image of one of the two",
        )
    _check_volume(step.host)
    report_size(step)


def _check_volume(host: str) -> None:
    if not files.is_folder(VOLUME):
        raise Failure(
            f"there is no folder {VOLUME}, so nothing would outlive a stop of the pod",
            f"start {host} with a volume that is mounted at {VOLUME}",
        )
