"""The words that mount(8) calls its helper with."""

import argparse
import re
from dataclasses import dataclass, field

RETRY_DEFAULT_MIN = 2
"""Minutes to go on trying to reach the server at mount time, as for mount.nfs(8); `retry=N` sets it."""

GENERIC_OPTIONS = {"ro", "rw", "suid", "nosuid", "dev", "nodev", "exec", "noexec", "atime", "noatime", "sync", "async"}
"""Mount options of any file system; FUSE gets them as they are."""


@dataclass
class Request:
    """A mount as asked for on the command line."""

    source: str
    server: str
    export: str
    target: str
    retry_s: float = RETRY_DEFAULT_MIN * 60.0
    fuse: dict[str, bool] = field(default_factory=dict)
    fake: bool = False


def parse_request(argv: list[str]) -> Request:
    """Return the mount that mount(8)'s arguments request.

    Raises ValueError for a source that is no server:/path, or a version of NFS other than 4.
    """
    parser = argparse.ArgumentParser(prog="mount.nfs4")
    parser.add_argument("source")
    parser.add_argument("target")
    parser.add_argument("-o", dest="options", default=[], action="append")
    parser.add_argument("-f", dest="fake", action="store_true")
    for ignored in ("-s", "-n", "-v"):
        parser.add_argument(ignored, action="store_true")
    for generic in ("-r", "-w"):
        parser.add_argument(generic, dest="access", action="store_const", const=f"{generic}o")
    arguments = parser.parse_args(argv)
    server, separator, export = arguments.source.partition(":")
    if not separator or not server or not export.startswith("/"):
        raise ValueError(f"{arguments.source} is not server:/path")
    request = Request(arguments.source, server, export, arguments.target, fake=arguments.fake)
    for option in ",".join(arguments.options).split(","):
        key, _, value = option.partition("=")
        if key in GENERIC_OPTIONS:
            request.fuse[key] = True
        elif key in {"vers", "nfsvers"} and not re.fullmatch(r"4(\.[012])?", value):
            raise ValueError(f"NFS version {value}: only version 4 is spoken here")
        elif key == "retry":
            request.retry_s = float(value) * 60.0
    if arguments.access == "-ro":
        request.fuse["ro"] = True
    return request
