"""Take a machine that has left from the tailnet's list: a program that reads one JSON object on stdin.

`tailscale logout` makes a machine's key end (tailscale.com, control/controlclient/direct.go, doLogin: an expiry in the
far past). The control server then forgets an ephemeral machine; another one stays on the list, its name taken, and so
does one that died.

name, address, tag               of the machine: all three must be one device's, or nothing is removed
base_url, organization, credentials   see stacks.tailnet.api

Prints what it did. Fails with one sentence and what to do, on stderr; no secret is in either.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

from stacks.tailnet.api import Api, ApiError


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
        found = [device for device in api.devices() if is_it(device, **machine)]
        for device in found:
            api.remove(str(device.get("nodeId") or device.get("id")))
    except ApiError as error:
        sys.stderr.write(
            f"{machine['name']} is still on the tailnet's list of machines: {error}\nnext: set credentials that open "
            "the API (scope devices:core), or remove it in the admin console, then run the same command again\n"
        )
        return 1
    sys.stdout.write(f"removed {len(found)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.stdin.read()))
