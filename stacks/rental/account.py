"""The part of a cloud account that a stack uses: a program that reads one JSON object on stdin (`up` or `down`).

`up` prints the owner, a word that tags all machines of the stack, and the log-in key's name in the account. The owner
is random, because two stacks of one name may share an account. It is in the state before any machine is rented.
`down` runs after all machines of the state are gone. It ends the rent of any other machine of this owner, which an `up`
that was killed may have rented, and removes the key.

cloud, base_url, api_key   the account
public_key                 for log-ins
"""

import json
import os
import secrets
import shutil
import sys
import time
from collections.abc import Mapping
from typing import Any

from stacks.http_client import ApiError, use_packages
from stacks.rental.cloud import GONE, Cloud, Instance
from stacks.rental.clouds import account
from stacks.rental.machine import LAST, LAUNCHES, LONGEST_PAUSE, RentalError, end, explain

# Seconds after which a launch that was in progress shows in the list: the limit of a call, and the list's delay.
SETTLE_SECONDS = 75.0
_ENDED = "all machines of the stack"


def up(cloud: Cloud, public_key: str, last: Mapping[str, Any]) -> dict[str, str]:
    """Return the owner, which stays the same, and the key's name. Raises ApiError for wrong credentials."""
    owner = str(last.get("owner") or secrets.token_hex(6))
    return {"owner": owner, "key": cloud.add_key(key_name(owner), public_key)}


def down(cloud: Cloud, owner: str) -> int:
    """End the rent of all machines of an owner, remove its key, and return the number of machines."""

    def mine() -> list[Instance]:
        return [one for one in cloud.instances() if one.state != GONE and one.is_of(owner)]

    ended, until = end(cloud, mine, _ENDED), time.monotonic() + _settle_seconds(owner)
    while time.monotonic() < until:
        time.sleep(LONGEST_PAUSE)
        if late := end(cloud, mine, _ENDED):
            ended, until = ended + late, time.monotonic() + SETTLE_SECONDS
    cloud.remove_key(key_name(owner))
    shutil.rmtree(LAUNCHES / owner, ignore_errors=True)
    return ended


def _settle_seconds(owner: str) -> float:
    """Return the time for which an empty list of machines proves nothing: an `up` that was killed may have a launch in
    progress, and a list may lack a new machine. All of it where this checkout has rented nothing, so another one has.
    """
    folder = LAUNCHES / owner
    if not folder.is_dir():
        return SETTLE_SECONDS
    ages = [time.time() - launch.stat().st_mtime for launch in folder.iterdir()]
    return max((SETTLE_SECONDS - age if age > 0 else SETTLE_SECONDS for age in ages), default=0.0)


def key_name(owner: str) -> str:
    """Return the name of an owner's log-in key."""
    return f"tailrack-{owner}"


def main(action: str, text: str) -> int:
    """Run the action; return the exit status."""
    request: dict[str, Any] = json.loads(text)
    last: dict[str, Any] = json.loads(os.environ.get(LAST) or "{}")
    cloud = account(request["cloud"], request["base_url"], request["api_key"])
    try:
        if action == "down":
            count = down(cloud, str(last["owner"]))
            sys.stdout.write(f"ended {count}\n")
        else:
            sys.stdout.write(json.dumps(up(cloud, request["public_key"], last)) + "\n")
    except (ApiError, RentalError) as error:
        sys.stderr.write(explain(error, cloud.title, "the account", request["cloud"]))
        return 1
    return 0


if __name__ == "__main__":
    use_packages()
    sys.exit(main(sys.argv[1], sys.stdin.read()))
