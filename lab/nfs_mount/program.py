"""The program: it mounts, and serves until it is unmounted."""

import sys
from typing import NoReturn

from .caller import Identity, was_killed
from .file_system import NfsFileSystem
from .libnfs import load_libnfs
from .request import parse_request
from .session import Server, Session

MOUNT_FAILED = 32
"""mount(8)'s exit status for a mount that failed."""


def mount(argv: list[str]) -> int:
    """Mount and serve the request in mount(8)'s arguments; return the exit status."""
    try:
        request = parse_request(argv)
    except ValueError as error:
        print(f"mount.nfs4: {error}", file=sys.stderr)
        return 1
    if request.fake:
        return 0
    import fusepy  # type: ignore[import-not-found]

    lib = load_libnfs()

    server = Server(request.server, request.export)

    mounter = Session(lib, server, (0, 0, ()))

    def killed() -> bool:
        return was_killed(fusepy.fuse_get_context()[2])

    def session(identity: Identity) -> Session:
        return mounter if identity == mounter.identity else Session(lib, server, identity, killed)

    try:
        mounter.run(lambda: None, limit_s=request.retry_s)
        # Only now have calls a caller.
        mounter.killed = killed
    except OSError as error:
        print(f"mount.nfs4: {request.source}: {error.strerror}", file=sys.stderr)
        return MOUNT_FAILED
    try:
        fusepy.FUSE(
            NfsFileSystem(session, fusepy.fuse_get_context),
            request.target,
            raw_fi=True,
            encoding="latin-1",
            fsname=request.source,
            subtype="nfs4",
            allow_other=True,
            default_permissions=True,
            nonempty=True,
            use_ino=True,
            big_writes=True,
            max_write=131072,
            max_read=131072,
            attr_timeout=1,
            entry_timeout=1,
            negative_timeout=0,
            **request.fuse,
        )
    except RuntimeError as error:
        print(f"mount.nfs4: {request.target}: FUSE failed ({error})", file=sys.stderr)
        return MOUNT_FAILED
    return 0


def main() -> NoReturn:
    """Run the mount helper."""
    sys.exit(mount(sys.argv[1:]))
