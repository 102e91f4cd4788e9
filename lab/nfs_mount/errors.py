"""Meaning of libnfs's errors: an answer, a lost connection, or a server that asks for a retry."""

import errno
import re

LOST = {"EXPIRED", "STALE", "STALE_CLIENTID", "STALE_STATEID", "OLD_STATEID", "BAD_STATEID", "BAD_SEQID"}
LOST |= {"FHEXPIRED", "ADMIN_REVOKED", "CLID_INUSE"}
"""NFS errors of a server that has forgotten this client: reconnect and open the files again."""

BUSY = {"DELAY", "GRACE"}
"""NFS errors that mean: ask again in a moment."""

ERRNO_OF = {"ACCESS": errno.EACCES, "DQUOT": errno.EDQUOT, "NOTSUPP": errno.EOPNOTSUPP, "SYMLINK": errno.ELOOP}
ERRNO_OF |= {"WRONGSEC": errno.EACCES, "SHARE_DENIED": errno.EBUSY, "FILE_OPEN": errno.EBUSY, "LOCKED": errno.EBUSY}
"""NFS errors (without NFS4ERR_) with another errno name."""


class Lost(Exception):
    """The connection, or the state behind it, is gone."""


class Busy(Exception):
    """The server asks the client to retry later."""


def failure(code: int, message: str) -> Exception:
    """Return the exception for libnfs's negative `code` and its error text.

    The code alone misleads: libnfs 5.0 reads NFSv4 errors by NFSv3's table, so the name in the text decides.
    EFAULT and EINTR come from the connection, even if the text is older.
    """
    named = None if -code in {errno.EFAULT, errno.EINTR} else re.search(r"NFS4ERR_(\w+)", message)
    if named is None:
        if "Insufficient ACCESS" in message and -code == errno.EINVAL:
            return OSError(errno.EACCES, message)
        return Lost(message) if -code in {errno.EFAULT, errno.EINTR, errno.EIO} else OSError(-code, message)
    name = named[1]
    if name in LOST:
        return Lost(message)
    if name in BUSY:
        return Busy(message)
    return OSError(ERRNO_OF.get(name, getattr(errno, f"E{name}", errno.EIO)), message)
