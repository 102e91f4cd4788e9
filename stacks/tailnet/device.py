"""Remove a machine that has left from the tailnet's list: a program that reads one JSON object on stdin.

`tailscale logout` expires a machine's key (tailscale.com, control/controlclient/direct.go, doLogin). The control server
then forgets an ephemeral machine. Any other machine stays on the list with its name, like a machine that died.

A machine that is still connected has not left: the stack's tailnet has become one of another kind, and the machine
stays. The program waits for a machine that is logging out.

name, address, tag               of the machine; the program removes a device only if all three match
base_url, organization, credentials   see stacks.tailnet.api

The program prints the number of removed devices. If it fails, it prints one sentence and a remedy on stderr. The output
contains no secret.
"""

import json
import sys
import time
from collections.abc import Mapping
from typing import Any

from stacks.http_client import ApiError, use_packages
from stacks.tailnet.api import Api

# The control server may need this long to notice a log-out.
LIMIT_SECONDS, PAUSE_SECONDS = 60.0, 2.0


def is_it(device: Mapping[str, Any], name: str, address: str, tag: str) -> bool:
    """Return whether a device of the API's list is this machine of the cluster."""
    host_name = str(device.get("name", "")).split(".")[0]
    return host_name == name and address in (device.get("addresses") or []) and tag in (device.get("tags") or [])


def main(text: str) -> int:
    """Remove the machine; return 0 if it is no longer on the list."""
    request: dict[str, Any] = json.loads(text)
    machine = {key: request[key] for key in ("name", "address", "tag")}
    try:
        api = Api(request["base_url"], request["organization"], request["credentials"])
        devices, offline = _devices(api, machine)
        until = time.monotonic() + LIMIT_SECONDS
        while len(offline) < len(devices) and time.monotonic() < until:
            time.sleep(PAUSE_SECONDS)
            devices, offline = _devices(api, machine)
        for device in offline:
            api.remove(str(device.get("nodeId") or device.get("id")))
    except ApiError as error:
        sys.stderr.write(
            f"{machine['name']} is still on the tailnet's list of machines: {error}\nnext: set credentials for the API "
            "(scope devices:core), or remove the machine in the admin console, then run the same command again\n"
        )
        return 1
    sys.stdout.write(f"removed {len(offline)}, kept {len(devices) - len(offline)} connected\n")
    return 0


def _devices(api: Api, machine: Mapping[str, str]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the machine's devices on the list, and those of them that are offline."""
    devices = [device for device in api.devices() if is_it(device, **machine)]
    return devices, [device for device in devices if not device.get("connectedToControl")]


if __name__ == "__main__":
    use_packages()
    sys.exit(main(sys.stdin.read()))
