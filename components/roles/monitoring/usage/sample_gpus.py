"""The command `gpu-use` on a node: sample the GPUs of jobs, and answer the head node with the sums.

gpu-use            as root, once a minute while a job has GPUs, as a task
gpu-use answer     print {"jobs": {"12": {"gpus": 2, ...}}} of running jobs and of those that ended lately
"""

import json
import re
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple

from components.node import files
from components.node.accounts import as_user
from components.node.locks import Lock
from components.roles.jobs.job_hangs import watch
from components.roles.monitoring.usage.samples import (
    JOBS,
    POWERLESS,
    QUERY,
    QUERY_WITH_POWER,
    SAMPLES,
    GpuSamples,
    JobSamples,
    Reading,
    read_gpus,
)
from components.validation.preflight.collect import NOBODY
from components.validation.preflight.gpu_health import bus_address
from components.validation.preflight.holders import GRES, MINOR, device_numbers_in, devices_of

LIMIT_SECONDS = 30
# The head node records an ended job within minutes.
KEEP_SECONDS = 3600
_JOB = re.compile(r"[0-9]{1,10}")


def main(arguments: Sequence[str]) -> int:
    """Sample, or answer."""
    if list(arguments) == ["answer"]:
        uses = {job: asdict(read(job).use) for job in files.names_in(SAMPLES) if _recent(job)}
        sys.stdout.write(json.dumps({"jobs": uses}))
        return 0
    with Lock("gpu-use", seconds=LIMIT_SECONDS):
        return sample()


def sample() -> int:
    """Add a sample to each job with GPUs, and forget jobs that ended long ago."""
    for job in files.names_in(SAMPLES):
        if not _recent(job):
            files.remove(f"{SAMPLES}/{job}")
    watch.forget()
    jobs = [job for job in files.names_in(JOBS) if _JOB.fullmatch(job)]
    if not jobs:
        return 0
    # As root, nvidia-smi would create device files that a container must not have.
    minutes = watch.minutes()
    ended = as_user(NOBODY, "nvidia-smi", *(QUERY_WITH_POWER if minutes else QUERY), limit=LIMIT_SECONDS)
    if not ended.ok:
        sys.stderr.write(f"nvidia-smi ended with status {ended.status}\n")
    # Without readings the jobs' GPUs are still counted: they are held.
    readings = {_device(reading): reading for reading in read_gpus(ended.output if ended.ok else "")}
    if minutes:
        _log_powerless(readings)
    devices = device_numbers_in(files.read(f"/{GRES}") or "")
    files.make_folder(SAMPLES, 0o700)
    end = time.monotonic() + watch.ASKING_SECONDS
    for job in jobs:
        held = _held(job, devices)
        _add(job, held, readings)
        if minutes and held:
            watch.watch(job, [readings.get(device) for device in held], minutes, end)
    return 0


def read(job: str) -> JobSamples:
    """Return the samples of a job so far; none after a file that a full disk has cut off."""
    try:
        rows = json.loads(files.read(f"{SAMPLES}/{job}") or "{}")
        return JobSamples({int(device): GpuSamples(*map(int, row)) for device, row in rows.items()})
    except (ValueError, TypeError, AttributeError):
        return JobSamples()


def _held(job: str, devices: Sequence[int]) -> list[int]:
    """Return the numbers of a job's GPUs. The job may have ended meanwhile; then it has none any more."""
    return devices_of(files.read(f"{JOBS}/{job}") or "", devices)


def _add(job: str, held: Sequence[int], readings: Mapping[int, Reading]) -> None:
    if not held:
        return
    gpus = read(job).plus(held, readings).gpus
    rows = {device: astuple(gpu) for device, gpu in gpus.items()}
    files.write(f"{SAMPLES}/{job}", json.dumps(rows), 0o600)


def _log_powerless(readings: Mapping[int, Reading]) -> None:
    """Name the GPUs without a figure of their power, once: no job that waits there is found."""
    names = ", ".join(f"nvidia{device}" for device, reading in sorted(readings.items()) if not reading.limit)
    if names and (files.read(POWERLESS) or "").strip() != names:
        files.write(POWERLESS, names, 0o600)
        sys.stderr.write(f"{names}: no figure of power, so tailrack:job_hangs reports no job that waits there\n")


def _device(reading: Reading) -> int:
    """Return the number of a GPU's device file. nvidia-smi's index is another number if the driver skips a GPU."""
    text = files.read(f"/proc/driver/nvidia/gpus/{bus_address(reading.bus)}/information") if reading.bus else None
    minor = MINOR.search(text or "")
    return int(minor[1]) if minor else reading.index


def _recent(job: str) -> bool:
    age = files.age_of(f"{SAMPLES}/{job}")
    return files.exists(f"{JOBS}/{job}") or (age is not None and age < KEEP_SECONDS)
