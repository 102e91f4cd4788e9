"""The password with which members of the cluster read data sets from each other: derived from the munge key."""

from __future__ import annotations

import hashlib
import hmac

from components.node import files
from components.node.failure import Failure
from components.roles.datasets.paths import ACCOUNT, PASSWORD, SECRETS
from components.roles.munge.keys import KEY, take_folder

USER = "tailrack"


def write_password() -> None:
    """Write the password for rsync, as client and as server. It changes with the munge key."""
    take_folder()
    key = files.read(KEY)
    if not key:
        raise Failure(f"there is no {KEY}, which members prove themselves with", "run up again")
    password = hmac.new(key.encode("utf-8", "surrogateescape"), b"tailrack data sets", hashlib.sha256).hexdigest()
    files.write_all(
        [files.File(PASSWORD, password, 0o640, group=ACCOUNT), files.File(SECRETS, f"{USER}:{password}", 0o600)]
    )
