"""Join the tailnet from a pod, which has no TUN device.

tailscaled passes connections from the tailnet to 127.0.0.1, and programs reach the tailnet through its proxy (the
library of role pod).
"""

from __future__ import annotations

import shlex

from components.node import files, services
from components.node.failure import Failure
from components.node.proxy import proxy_variables
from components.node.run import attempt
from components.node.step.step import Step
from components.node.waiting import wait_until
from components.roles.pod.paths import PROXY, SOCKET, TAILNET
from components.roles.pod_staging.paths import CUT_OFF
from components.roles.tailnet import tailscale
from components.roles.tailnet.join import (
    JoinValues,
    granted_name,
    install,
    joined_as_asked,
    log_in,
    name_is_taken,
    remove_keys,
)
from components.roles.tailnet.membership import RECORD, line_of, refuse_another_tailnet, require_new_enough
from components.roles.tailnet.pod_leave import let_leaving_end
from components.roles.tailnet.tailscale import Tailscale

SERVICE = "tailscaled"
_ANSWER_SECONDS = 30
_STATE_FILE = f"{TAILNET}/tailscaled.state"
_SETTLED = ("Running", "NeedsLogin", "NeedsMachineAuth", "Stopped")
_PROGRAM = f"""#!/bin/sh
# Written by tailrack.
exec 2>&1
mkdir -p /var/run/tailscale
# All connections of the last process are lost.
[ ! -x {CUT_OFF} ] || {CUT_OFF} &
@PROXY@exec tailscaled --tun=userspace-networking --statedir={TAILNET} --state={_STATE_FILE} --socket={SOCKET} \\
    --socks5-server={PROXY}"""


def pod_join(step: Step, values: JoinValues) -> None:
    """Make the pod a member of the tailnet, and report how others reach it."""
    host = step.host
    remove_keys()
    let_leaving_end(host)
    refuse_another_tailnet(Tailscale(), host)
    install(host)
    require_new_enough(host)
    files.make_folder(TAILNET, 0o700)
    # runsvdir looks for services when it starts, and then every five seconds.
    if not services.on_runit():
        services.write(SERVICE, tailscaled_program())
    services.start_all()
    services.keep(SERVICE, tailscaled_program(), host)
    if not wait_until(lambda: Tailscale().state in _SETTLED, _ANSWER_SECONDS):
        raise Failure("tailscaled does not start", f"see {services.log_of(SERVICE, host)}")
    _join(values, host)
    step.result("tailnet_ip", tailscale.address())
    step.result("firewall", "")
    step.result("tailscale_version", tailscale.version())


def tailscaled_program() -> str:
    """Return tailscaled's program, with the proxy in /etc/environment: another container loses that file."""
    exports = (f"export {name}={shlex.quote(value)}\n" for name, value in proxy_variables().items())
    return _PROGRAM.replace("@PROXY@", "".join(exports))


def _join(values: JoinValues, host: str) -> None:
    now = Tailscale()
    refuse_another_tailnet(now, host)
    if joined_as_asked(now, values, host):
        return
    # A killed join must not look like somebody else's.
    membership = line_of(values.wanted_server, host)
    files.add_line(RECORD, membership)
    log_in(now, values, host)
    granted = granted_name()
    if granted != host:
        # The next run asks for the name again.
        attempt("tailscale", "logout")
        files.remove(RECORD)
        raise name_is_taken(host, granted)
    files.write(RECORD, membership)
