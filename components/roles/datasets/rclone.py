"""List and fetch a source in S3 or on a web server, with rclone.

Its settings and keys are in a JSON file that only root and the account read. `data-files rclone` passes them on in
rclone's environment, which takes every character as it is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from components.node import files
from components.node.failure import Failure
from components.node.log import note
from components.node.run import Ended
from components.node.text import printable
from components.roles.datasets.account import output, reason, transfer
from components.roles.datasets.paths import ACCOUNT, FILES_PROGRAM

LIST_SECONDS = 1800
# Without them, rclone retries for minutes when a server refuses a key.
_ONCE = ("--retries=1", "--low-level-retries=3", "--contimeout=10s", "--timeout=60s")
_SERVER_TIME = "--use-server-modtime"
# The time that rclone reports for a file without one.
_NO_TIME = "1970-01-01T00:00:00"


def config(kind: str, source: str, *, endpoint: str, region: str, access_key: str, secret_key: str) -> str:
    """Return the settings of a source for rclone, as JSON, with the path at the remote."""
    if kind == "s3":
        settings = {
            "type": "s3",
            "provider": "Other" if endpoint else "AWS",
            "access_key_id": access_key,
            "secret_access_key": secret_key,
            "endpoint": endpoint,
            "region": region,
            "force_path_style": "true" if endpoint else "",
            "no_check_bucket": "true",
        }
        path = source.removeprefix("s3://")
    else:
        folder, _, path = source.rpartition("/")
        settings = {"type": "http", "url": f"{folder}/"}
    return json.dumps({"path": path, "settings": {name: value for name, value in settings.items() if value}})


def _read(config_file: str) -> tuple[str, bool]:
    """Return the path at the remote, and whether the source is a web server."""
    data = json.loads(files.read(config_file) or "{}")
    return data["path"], data["settings"]["type"] == "http"


def write_config(path: str, text: str) -> None:
    """Write the settings so that only root and the account can read them."""
    files.write(path, text, 0o640, "root", ACCOUNT)


def entries(config_file: str) -> list[tuple[str, int, str]]:
    """Return path, size and time of all files at the source. Raises Failure."""
    path, web = _read(config_file)
    if web and path:
        # Most web servers list no folder.
        row = _list(config_file, "--stat", f"source:{path}")
        rows = [(path, row["Size"], row["ModTime"])] if row else []
    else:
        options = ("-R", "--files-only", "--fast-list")
        rows = [(row["Path"], row["Size"], row["ModTime"]) for row in _list(config_file, *options, f"source:{path}")]
    if web and not path:
        # rclone leaves out files whose size it cannot get, and ends with status 0.
        names = {row["Path"] for row in _list(config_file, *options, "--http-no-head", "source:")}
        if lost := sorted(names - {name for name, _, _ in rows}):
            raise Failure(f"the server lists {len(lost)} files and reports no size of them, such as {_shown(lost[0])}")
    if untimed := [name for name, _, time in rows if web and time.startswith(_NO_TIME)]:
        note(f"{len(untimed)} files have no Last-Modified, such as {_shown(untimed[0])}: only new sizes are noticed")
    return rows


def _shown(path: str) -> str:
    return printable(path, 80)


def _list(config_file: str, *options: str) -> Any:
    words = ("lsjson", "--no-mimetype", _SERVER_TIME, *_ONCE, *options)
    ended = output(FILES_PROGRAM, "rclone", files.on_disk(config_file), *words, limit=LIST_SECONDS)
    if not ended.ok:
        raise Failure(reason(ended))
    try:
        return json.loads(ended.output)
    except ValueError:
        raise Failure("the list of files is malformed") from None


def copy(
    config_file: str,
    folder: str,
    *,
    paths: str,
    report: Callable[[int], None],
    rate: int,
    old: Sequence[str],
    again: bool,
) -> Ended:
    """Fetch files to a folder, as the account.

    paths   file with the paths, one per line
    rate    bytes per second; 0: no limit
    old     folders of earlier versions, whose files that did not change are left out
    again   fetch files that look the same too
    """
    path, web = _read(config_file)
    is_file = web and bool(path)
    options = [
        *("--files-from-raw", paths, "--transfers=8", "--checkers=16", _SERVER_TIME),
        # Otherwise one of two names that look the same is lost.
        "--no-unicode-normalization",
        # One request lists a thousand objects. Without the list, each object needs one request: twice the
        # time for 500 small ones. A web server need not have a list.
        "--no-traverse" if is_file else "--fast-list",
        *("--retries=3", "--low-level-retries=10", "--contimeout=10s", "--timeout=120s"),
        *("--progress", "--stats=2s", "--stats-one-line"),
        *(["--ignore-times"] if again else []),
        *([f"--bwlimit={max(rate // 1024, 1)}k"] if rate else []),
        *(f"--compare-dest={files.on_disk(place)}" for place in old if not again),
    ]
    # If the source is one file, its folder is the remote folder.
    remote = "source:" if is_file else f"source:{path}"
    return transfer(report, "rclone", files.on_disk(config_file), "copy", *options, remote, files.on_disk(folder))
