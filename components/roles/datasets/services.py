"""Install the head node's part: it lists the sources, plans the copies and serves sources on the share."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from components.node import files, systemd
from components.node.log import note
from components.node.run import run
from components.node.step.step import Step
from components.roles.datasets import paths
from components.roles.datasets.account import ensure_account
from components.roles.datasets.serve import listen, prepare, remove_server, serve


@dataclass(frozen=True)
class HeadValues:
    """The settings as JSON, empty without data sets; and the secret keys by data set, as JSON."""

    datasets_settings: str
    datasets_keys: str = field(repr=False)
    head_address: str


def services(step: Step, values: HeadValues) -> None:
    """Install it, or remove it. The work goes on in the background."""
    if not values.datasets_settings:
        remove_head()
        return
    ensure_account()
    prepare()
    settings = {**json.loads(values.datasets_settings), "keys": json.loads(values.datasets_keys)}
    files.write(paths.SETTINGS, json.dumps(settings), 0o600)
    files.make_folder(paths.FETCHED, 0o700)
    files.make_folder(paths.PLAN, 0o750, group=paths.ACCOUNT)
    serve("head", {"plan": paths.PLAN})
    listen(values.head_address)
    systemd.reload(paths.HEAD, paths.HEAD_TIMER)
    systemd.enable(paths.HEAD_TIMER, now=True)
    # A run with earlier settings may take long: end it.
    run("systemctl", "restart", "--no-block", paths.HEAD)
    note("data sets are copied in the background: 'tailrack data' shows how far")


def remove_head() -> None:
    """Remove the head node's part; its copies, if it runs jobs, are removed by `compute`."""
    if not files.exists(paths.SETTINGS) and not files.exists(f"{systemd.UNITS}/{paths.HEAD_TIMER}"):
        return
    systemd.retire(paths.HEAD_TIMER, paths.HEAD)
    files.remove(paths.HEAD_PROGRAM)
    files.remove(f"{paths.MODULES}/head.conf")
    for path in (paths.SETTINGS, paths.REPORT):
        files.remove(path)
    for path in (paths.PLAN, paths.FETCHED, f"{paths.STATE}/nodes"):
        files.remove_folder(path)
    if not files.exists(f"{paths.MODULES}/node.conf"):
        remove_server()
