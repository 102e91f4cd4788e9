"""rclone and rsync list and copy the files of a data set, as an account without other rights.

rclone's settings and keys are in a JSON file that only root and the account read. `data-files rclone` passes them on in
rclone's environment, which takes every character as it is.

The account runs the command `data-files`:

data-files sums FOLDER       print path, size, time and SHA-256 of each file on stdin; size -1 for one that does not fit
data-files rclone FILE ...   run rclone with the settings of a source and the machine's proxy in its environment
data-files hub FILE          print path, size, time and SHA-256 (of small files empty) of a repository's files
"""

import hashlib
import json
import os
import re
import stat
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from components.node import files
from components.node.accounts import as_user
from components.node.failure import Failure
from components.node.fetch import proxy_in
from components.node.log import note, printable
from components.node.run import Ended
from components.roles.storage.datasets.model import ACCOUNT, FILES_PROGRAM, MOST_ERROR, Entry, write_entries
from components.roles.storage.datasets.serve import PASSWORD

_LIST_SECONDS = 1800
# A data set may take days.
_COPY_SECONDS = 7 * 86400.0
# Words of rclone before the reason.
_PREFIX = re.compile(r"^[0-9/]+ [0-9:]+ ((ERROR|NOTICE) : )?(Failed to \w+: )?(error in ListJSON: )?")
_REASON = re.compile("error|fail|denied|refused|no space|forbidden|no referent", re.IGNORECASE)
# The time that rclone reports for a file without one.
_NO_TIME = "1970-01-01T00:00:00"
# A line of rsync's list of plain files: size, time and name. `\#` and three digits stand for a byte of the name.
_LINE = re.compile(r"-\S+ +([0-9]+) ([0-9/]{10} [0-9:]{8}) (.+)")
_ESCAPED = re.compile(r"\\#[0-7]{3}")
# Links become files: the server confines itself to the share.
_RSYNC = ("rsync", "-rt", "--copy-links", "--no-devices", "--no-specials", "--contimeout=10", "--timeout=120")
_CHUNK = 2**20
_AT_ONCE = 4
_MOST_PAGE = 64 * 2**20
_NEXT_PAGE = re.compile(r'<([^>]+)>; *rel="next"')


def output(*arguments: str, stdin: str = "", limit: float = _COPY_SECONDS) -> Ended:
    """Run a program as the account, and return its output."""
    return as_user(ACCOUNT, *arguments, limit=limit, stdin=stdin, most=2**30)


def sums_of(folder: str, entries: Sequence[Entry]) -> list[Entry]:
    """Return the entries with the sums of their files; size -1 for those whose size or sum is another one."""
    ended = output(FILES_PROGRAM, "sums", files.on_disk(folder), stdin=write_entries(entries))
    if not ended.ok:
        raise Failure(f"cannot read the files in {folder}: {reason(ended)}", "see 'journalctl -u tailrack-data-stage'")
    return [Entry(*json.loads(line)) for line in ended.output.splitlines()]


def reason(ended: Ended) -> str:
    """Return the line of a program's errors that has the reason of its failure."""
    if ended.status == 124:
        return "it took too long"
    lines = [line for line in ended.errors.splitlines() if line.strip()]
    # rsync ends with a line that only says that there were errors.
    errors = [line for line in lines if _REASON.search(line) and not line.startswith("rsync error:")]
    return printable(_PREFIX.sub("", (errors or lines or [f"exit status {ended.status}"])[-1].strip()), MOST_ERROR)


def rclone_config(kind: str, source: str, *, endpoint: str, region: str, access_key: str, secret_key: str) -> str:
    """Return the settings of a source for rclone, as JSON, with the path at the remote."""
    listing: dict[str, str] = {}
    if kind == "s3":
        settings = {
            **{"type": "s3", "provider": "Other" if endpoint else "AWS", "no_check_bucket": "true"},
            **{"access_key_id": access_key, "secret_access_key": secret_key, "endpoint": endpoint, "region": region},
            "force_path_style": "true" if endpoint else "",
        }
        path = source.removeprefix("s3://")
    elif kind == "hf":
        repository, _, place = source.removeprefix("hf://").partition("@")
        commit, _, folder = place.partition("/")
        path, server, below = "", endpoint or "https://huggingface.co", f"/{folder}" if folder else ""
        settings = {"type": "http", "url": f"{server}/{repository}/resolve/{commit}{below}/"}
        settings["headers"] = f"Authorization,Bearer {secret_key}" if secret_key else ""
        # Without `datasets/`, it is a model.
        kind_of_repository = "" if repository.startswith("datasets/") else "models/"
        tree = f"{server}/api/{kind_of_repository}{repository}/tree/{commit}{below}?recursive=true"
        listing = {"tree": tree, "folder": folder}
    else:
        folder, _, path = source.rpartition("/")
        settings = {"type": "http", "url": f"{folder}/"}
    return json.dumps({"path": path, **listing, "settings": {name: value for name, value in settings.items() if value}})


def hub_list(config: str) -> list[Entry]:
    """Return all files of a repository of Hugging Face. Raises Failure."""
    ended = output(FILES_PROGRAM, "hub", files.on_disk(config), limit=_LIST_SECONDS)
    if not ended.ok:
        raise Failure(reason(ended))
    return [Entry(*json.loads(line)) for line in ended.output.splitlines()]


def write_config(path: str, text: str) -> None:
    """Write rclone's settings so that only root and the account can read them."""
    files.write(path, text, 0o640, "root", ACCOUNT)


def _read(config: str) -> tuple[str, bool, bool]:
    """Return the path at the remote, whether the source is a web server, and whether rclone can list it."""
    data = json.loads(files.read(config) or "{}")
    web = data["settings"]["type"] == "http"
    return data["path"], web, not (web and (data["path"] or "tree" in data))


def rclone_list(config: str) -> list[Entry]:
    """Return all files at a source in S3 or on a web server. Raises Failure."""
    path, web, _ = _read(config)
    options = ("-R", "--files-only", "--fast-list", f"source:{path}")
    if web and path:
        # Most web servers list no folder.
        row = _lsjson(config, "--stat", f"source:{path}")
        rows = [{**row, "Path": path}] if row else []
    else:
        rows = _lsjson(config, *options)
    if web and not path:
        # rclone leaves out files whose size it cannot get, and ends with status 0.
        names = {row["Path"] for row in _lsjson(config, "--http-no-head", *options)}
        if lost := sorted(names - {row["Path"] for row in rows}):
            name = printable(lost[0], 80)
            raise Failure(f"the server lists {len(lost)} files and reports no size of them, such as {name}")
    if untimed := [row["Path"] for row in rows if web and row["ModTime"].startswith(_NO_TIME)]:
        name = printable(untimed[0], 80)
        note(f"{len(untimed)} files have no Last-Modified, such as {name}: only new sizes are noticed")
    return [Entry(row["Path"], row["Size"], row["ModTime"]) for row in rows]


def _lsjson(config: str, *options: str) -> Any:
    # Without them, rclone retries for minutes when a server refuses a key.
    once = ("--retries=1", "--low-level-retries=3", "--contimeout=10s", "--timeout=60s")
    words = ("lsjson", "--no-mimetype", "--use-server-modtime", *once, *options)
    ended = output(FILES_PROGRAM, "rclone", files.on_disk(config), *words, limit=_LIST_SECONDS)
    if not ended.ok:
        raise Failure(reason(ended))
    try:
        return json.loads(ended.output)
    except ValueError:
        raise Failure("the list of files is malformed") from None


def rclone_copy(config: str, folder: str, paths: str, rate: int) -> Ended:
    """Fetch files of a source to a folder. `paths`: the file with their paths; `rate`: bytes per second, or 0."""
    path, _, listed = _read(config)
    options = [
        *("--files-from-raw", files.on_disk(paths), "--transfers=8", "--checkers=16", "--use-server-modtime"),
        # Otherwise one of two names that look the same is lost.
        "--no-unicode-normalization",
        # One request lists a thousand objects. A web server need not have a list.
        "--fast-list" if listed else "--no-traverse",
        *("--retries=3", "--low-level-retries=10", "--contimeout=10s", "--timeout=120s"),
        *("--stats=1m", "--stats-one-line", "--stats-log-level=NOTICE"),
        *([f"--bwlimit={max(rate // 1024, 1)}k"] if rate else []),
    ]
    # If the source is one file, its folder is the remote folder.
    words = ("copy", *options, f"source:{path}" if listed else "source:", files.on_disk(folder))
    return output(FILES_PROGRAM, "rclone", files.on_disk(config), *words)


def rsync_list(source: str) -> list[Entry]:
    """Return all files of a module, also those behind links. Raises Failure."""
    options = ("--list-only", "--no-human-readable", "--8-bit-output", f"--password-file={files.on_disk(PASSWORD)}")
    ended = output("env", "TZ=UTC", *_RSYNC, *options, source, limit=_LIST_SECONDS)
    if not ended.ok:
        raise Failure(reason(ended))
    rows = [row.groups() for line in ended.output.split("\n") if (row := _LINE.fullmatch(line))]
    if unusual := [path for _, _, path in rows if _ESCAPED.search(path)]:
        raise Failure(f"the source has a file with an unusual name ({printable(unusual[0], 80)})")
    return [Entry(path, int(size), time) for size, time, path in rows]


def rsync_copy(source: str, folder: str, paths: str, rate: int) -> Ended:
    """Copy files of a module to a folder. `paths`: the file with their paths; `rate`: bytes per second, or 0."""
    limit = [f"--bwlimit={max(rate // 1024, 1)}"] if rate else []
    options = ("--chmod=D755,F644", "--sparse", "--partial", f"--password-file={files.on_disk(PASSWORD)}", *limit)
    return output(*_RSYNC, *options, f"--files-from={files.on_disk(paths)}", source, f"{files.on_disk(folder)}/")


def link_files(old: str, new: str, paths: str) -> None:
    """Link files of an earlier version that a folder lacks, if they exist. `paths`: the file with their paths."""
    old, new = f"{files.on_disk(old)}/", f"{files.on_disk(new)}/"
    output("rsync", "-rt", "--ignore-existing", f"--files-from={files.on_disk(paths)}", f"--link-dest={old}", old, new)


def work_with_files(arguments: Sequence[str]) -> int:
    """Run a command and return the exit status."""
    from concurrent.futures import ThreadPoolExecutor

    match [*arguments]:
        case ["rclone", file, *words]:
            settings = json.loads(Path(file).read_text(encoding="utf-8"))["settings"]
            source = {f"RCLONE_CONFIG_SOURCE_{name.upper()}": text for name, text in settings.items()}
            # No file: rclone gives `#`, quotes and `%(...)s` in it a meaning, and its errors repeat lines.
            command = ["rclone", "--config", "/dev/null", *words]
            os.execvpe("rclone", command, {**os.environ, **_proxy(), **source})  # noqa: S606 no shell
        case ["hub", file]:
            return print_tree(json.loads(Path(file).read_text(encoding="utf-8")))
        case ["sums", folder]:
            rows = [json.loads(line) for line in sys.stdin]
            with ThreadPoolExecutor(_AT_ONCE) as pool:
                for row in pool.map(lambda row: read_row(folder, row), rows):
                    sys.stdout.write(f"{json.dumps(row)}\n")
            return 0
    sys.stderr.write(f"{__doc__}")
    return 2


def print_tree(config: Mapping[str, Any]) -> int:
    """Print a row per file of a repository, and return the exit status.

    Files in large file storage have a SHA-256, with which the first node that fetches them compares its copy.
    """
    from urllib.error import URLError
    from urllib.request import Request, urlopen

    os.environ.update(_proxy())
    page, server = config["tree"], config["tree"].partition("/api/")[0]
    name, _, token = config["settings"].get("headers", "").partition(",")
    try:
        while page:
            request = Request(page)  # noqa: S310 https of the config's endpoint
            if token:
                # Not sent on to another server.
                request.add_unredirected_header(name, token)
            with urlopen(request, timeout=60) as answer:  # noqa: S310
                rows, link = json.loads(answer.read(_MOST_PAGE)), answer.headers.get("Link", "")
            for row in rows:
                if row["type"] == "file":
                    path = row["path"].removeprefix(f"{config['folder']}/" if config["folder"] else "")
                    large = row.get("lfs") or {}
                    sys.stdout.write(
                        f"{json.dumps([path, large.get('size', row['size']), '', large.get('oid', '')])}\n"
                    )
            page = following[1] if (following := _NEXT_PAGE.search(link)) else ""
            if page and not page.startswith(f"{server}/"):
                raise ValueError(f"the list goes on at {printable(page, 200)}")
    except (URLError, OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        sys.stderr.write(f"error: {page.partition('?')[0]}: {error}\n")
        return 1
    return 0


def _proxy() -> dict[str, str]:
    """Return the machine's proxy, which may contain a password."""
    with suppress(OSError):
        return proxy_in(Path("/etc/environment").read_text(encoding="utf-8", errors="surrogateescape"))
    return {}


def read_row(folder: str, row: Sequence[Any]) -> list[Any]:
    """Return an entry with the SHA-256 of its file; size -1 for a link, a special or missing file, or another sum."""
    path, size, time, wanted = row
    digest, read = hashlib.sha256(), 0
    try:
        descriptor = os.open(f"{folder}/{path}", os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb", buffering=0) as stream:
            if stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                while part := stream.read(_CHUNK):
                    digest.update(part)
                    read += len(part)
            else:
                read = -1
    except OSError:
        read = -1
    fits = read == size and wanted in ("", digest.hexdigest())
    return [path, size if fits else -1, time, digest.hexdigest() if fits else ""]
