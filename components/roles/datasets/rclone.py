"""List and fetch a source in S3 or on a web server, with rclone. Its keys are in a file that only its account reads."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from components.node import files
from components.node.failure import Failure
from components.node.run import Ended
from components.roles.datasets.account import output, reason, transfer
from components.roles.datasets.paths import ACCOUNT, FILES_PROGRAM

LIST_SECONDS = 1800
# Without them, rclone retries for minutes when a server refuses a key.
_ONCE = ("--retries=1", "--low-level-retries=3", "--contimeout=10s", "--timeout=60s")
_SERVER_TIME = "--use-server-modtime"


def config(kind: str, source: str, *, endpoint: str, region: str, access_key: str, secret_key: str) -> str:
    """Return rclone's configuration, with the remote path as a comment in the first line."""
    if kind == "s3":
        lines = {
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
        lines = {"type": "http", "url": f"{folder}/"}
    return "\n".join([f"# source:{path}", "[source]", *(f"{name} = {value}" for name, value in lines.items() if value)])


def _remote(config_file: str) -> str:
    return files.lines(config_file)[0].removeprefix("# ")


def write_config(path: str, text: str) -> None:
    """Write the configuration so that only root and the account can read it."""
    files.write(path, text, 0o640, "root", ACCOUNT)


def entries(config_file: str) -> list[tuple[str, int, str]]:
    """Return path, size and time of all files at the source. Raises Failure."""
    command = (
        FILES_PROGRAM,
        "exec",
        "rclone",
        "--config",
        files.on_disk(config_file),
        "lsjson",
        "-R",
        "--files-only",
        "--no-mimetype",
    )
    ended = output(*command, _SERVER_TIME, "--fast-list", *_ONCE, _remote(config_file), limit=LIST_SECONDS)
    if not ended.ok:
        raise Failure(reason(ended))
    try:
        return [(row["Path"], row["Size"], row["ModTime"]) for row in json.loads(ended.output)]
    except (ValueError, KeyError, TypeError):
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
    remote = _remote(config_file)
    name, _, path = remote.partition(":")
    is_file = files.lines(config_file)[2] == "type = http" and bool(path)
    if is_file:
        # The source is one file, so its folder is the remote folder.
        remote = f"{name}:"
    options = [
        *("--files-from-raw", paths, "--transfers=8", "--checkers=16", _SERVER_TIME),
        # One request lists a thousand objects. Without the list, each object needs one request: twice the
        # time for 500 small ones. A web server need not have a list.
        "--no-traverse" if is_file else "--fast-list",
        *("--retries=3", "--low-level-retries=10", "--contimeout=10s", "--timeout=120s"),
        *("--progress", "--stats=2s", "--stats-one-line"),
        *(["--ignore-times"] if again else []),
        *([f"--bwlimit={max(rate // 1024, 1)}k"] if rate else []),
        *(f"--compare-dest={files.on_disk(place)}" for place in old if not again),
    ]
    return transfer(
        report, "rclone", "--config", files.on_disk(config_file), "copy", *options, remote, files.on_disk(folder)
    )
