"""Take a machine that has left from the tailnet's list: a program that reads one JSON object on stdin.

`tailscale logout` makes a machine's key end (tailscale.com, control/controlclient/direct.go, doLogin: an expiry in the
far past). The control server then forgets an ephemeral machine; another one stays on the list, its name taken, and so
does one that died.

A machine that is still connected is none that has left: the stack's tailnet has become one of another kind, and the
machine stays. One that is just logging out is waited for.

name, address, tag               of the machine: all three must be one device's, or nothing is removed
base_url, organization, credentials   see stacks.tailnet.api

Prints what it did. Fails with one sentence and what to do, on stderr; no secret is in either.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from typing import Any

from stacks.tailnet.api import Api, ApiError

# A log-out may take that long to be known.
LIMIT_SECONDS, PAUSE_SECONDS = 60.0, 2.0


def is_it(device: Mapping[str, Any], name: str, address: str, tag: str) -> bool:
    """Whether a device of the API's list is this machine of the cluster."""
    called = str(device.get("name", "")).split(".")[0]
    return called == name and address in (device.get("addresses") or []) and tag in (device.get("tags") or [])


def main(text: str) -> int:
    """Remove the machine; 0 where it is not on the list any more."""
    asked: dict[str, Any] = json.loads(text)
    machine = {key: asked[key] for key in ("name", "address", "tag")}
    try:
        api = Api(asked["base_url"], asked["organization"], asked["credentials"])
        found, gone = _found(api, machine)
        until = time.monotonic() + LIMIT_SECONDS
        while len(gone) < len(found) and time.monotonic() < until:
            time.sleep(PAUSE_SECONDS)
            found, gone = _found(api, machine)
        for device in gone:
            api.remove(str(device.get("nodeId") or device.get("id")))
    except ApiError as error:
        sys.stderr.write(
            f"{machine['name']} is still on the tailnet's list of machines: {error}\nnext: set credentials that open "
            "the API (scope devices:core), or remove it in the admin console, then run the same command again\n"
        )
        return 1
    sys.stdout.write(f"removed {len(gone)}, left {len(found) - len(gone)} that work\n")
    return 0


def _found(api: Api, machine: Mapping[str, str]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The machine's entries on the list, and those of them that are not connected."""
    found = [device for device in api.devices() if is_it(device, **machine)]
    return found, [device for device in found if not device.get("connectedToControl")]


if __name__ == "__main__":
    sys.exit(main(sys.stdin.read()))
