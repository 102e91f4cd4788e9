"""Data sets on the nodes' own disks: listed and planned by the head node, fetched once per site (docs/data.md)."""

import json
from pathlib import PurePosixPath

from components.roles.cluster_settings import ClusterSettings
from components.roles.program import launcher
from components.roles.role import File, Role, Value, unit_like
from components.roles.storage.datasets import model
from components.roles.storage.datasets.copies import FOLDERS
from components.roles.storage.datasets.settings import Dataset, below, kind_of

PACKAGES = ("rclone", "rsync")
_GB = 10**9
_PORTS = (str(model.PORT),)
_PLANS = "List the sources of data sets, and plan the nodes' copies"
_COPIES = "Copy data sets to this machine's disk"


def role(settings: ClusterSettings) -> Role:
    """Return the role, also without data sets in the config: its phases then remove the copies."""
    used = bool(settings.datasets)
    values: dict[str, Value] = {
        "settings": head_settings(settings) if used else "",
        "used": used,
        "wait": [dataset.name for dataset in settings.datasets if dataset.wait],
    }
    keys = {"keys": json.dumps(_keys(settings.datasets), sort_keys=True) if used else ""}
    secret = bool(_keys(settings.datasets))
    role_values = values if secret else {**values, **keys}
    if not used:
        traces = {"services": (), "compute": (model.HEAD_ADDRESS, FOLDERS)}
        return Role("datasets", after=("slurm", "fabric"), values=role_values, only_where=traces)
    served = (File(model.FILES_PROGRAM, launcher("data-files"), "0755"),)
    shared = (model.STATE, *(f"/etc/systemd/system/{unit}" for unit in (model.SOCKET, model.SERVER)))
    return Role(
        "datasets",
        after=("slurm", "fabric"),
        values=role_values,
        secrets=keys if secret else {},
        packages={"services": PACKAGES, "compute": PACKAGES},
        files={
            "services": (*served, *_again(10, model.HEAD_TIMER, model.HEAD, _PLANS, model.HEAD_PROGRAM)),
            "compute": (*served, *_again(20, model.STAGE_TIMER, model.STAGE, _COPIES, model.STAGE_PROGRAM, "stage")),
        },
        made={
            "services": (model.SETTINGS, model.REPORT, model.PLAN, model.FETCHED, model.HEAD_MODULES, *shared),
            "compute": (model.HEAD_ADDRESS, model.FROM_HEAD, model.HERE, model.NODE_MODULES, *shared),
        },
        ports=_PORTS,
        serves=_PORTS,
        fabric_ports=(str(model.FABRIC_PORT),),
    )


def head_settings(settings: ClusterSettings) -> str:
    """Return the head node's settings as JSON, without secrets."""
    staging, storage = settings.staging, settings.storage
    return json.dumps(
        {
            "rate": (staging.rate_mb_per_s or 0) * 10**6,
            "reserve": staging.reserve_gb * _GB,
            "check_seconds": staging.check_minutes * 60,
            "sets": [_set(dataset, storage.path, storage.mount) for dataset in settings.datasets],
        },
        sort_keys=True,
    )


def _set(dataset: Dataset, path: str, mount: str) -> dict[str, object]:
    source, kind = dataset.source, kind_of(dataset.source)
    if kind == "share":
        above = mount if below(source, mount) else path
        # rsync confines itself to the part before `/./`, which users cannot replace by a link.
        source = f"{path}/./{PurePosixPath(source).relative_to(above)}"
    return {
        "name": dataset.name,
        "kind": kind,
        "source": source,
        "shown": dataset.source,
        "sites": None if dataset.sites is None else list(dataset.sites),
        "folder": dataset.folder,
        "most": (dataset.max_gb or 0) * _GB,
        "endpoint": dataset.endpoint or "",
        "region": dataset.region or "",
        "access_key": dataset.access_key or "",
    }


def _keys(datasets: tuple[Dataset, ...]) -> dict[str, str]:
    keys = ((dataset.name, dataset.secret_key or dataset.token) for dataset in datasets)
    return {name: key.get_secret_value() for name, key in keys if key}


def _again(seconds: int, timer: str, service: str, description: str, *command: str) -> tuple[File, ...]:
    """Return a program, and the units that start it again so many seconds after it has ended."""
    program, daemon = ("data-head", "slurmctld") if service == model.HEAD else ("data-stage", "slurmd")
    words = {"after": f"{daemon}.service", "command": " ".join(command), "limit": "infinity", "settings": ""}
    return (
        File(command[0], launcher(program), "0755"),
        unit_like("background", service, description=description, **words),
        unit_like("interval", timer, description=description, seconds=str(seconds)),
    )
