"""A pod in the tailnet, without a TUN device.

tailscaled passes connections from the tailnet to 127.0.0.1, and programs reach the tailnet through its proxy (the
library of role pod). A pod logs out after this program has ended, because that cuts the connection.
"""

import os
import shlex

from components.node import files, run, services
from components.node.failure import Failure
from components.node.fetch import proxy_variables
from components.node.locks import PRIVATE, Lock
from components.node.log import LOG_DIR
from components.node.run import attempt
from components.node.services import FOLDER as SERVICES
from components.node.services import SUPERVISOR_PID
from components.node.step.step import Step
from components.node.waiting import wait_until
from components.roles.network.tailnet import tailscale
from components.roles.network.tailnet.login import (
    KEYRING,
    SOURCE_LIST,
    JoinValues,
    install,
    joined_as_asked,
    log_in,
    name_is_taken,
    named,
    remove_keys,
)
from components.roles.network.tailnet.membership import RECORD, line_of, refuse_another_tailnet, require_new_enough
from components.roles.network.tailnet.tailscale import Tailscale
from components.roles.pods.pod.saved import PROXY, SOCKET, STATE, TAILNET
from components.roles.pods.pod_staging.record import CUT_OFF

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
_LEAVING = "leaving"
_LOGOUT_SECONDS = 90
# The one second lets the SSH session send its last output.
_LOG_OUT = f"""
timeout 20 tail --pid="$1" -s 0.1 -f /dev/null
sleep 1
timeout 60 tailscale logout
kill -TERM "$(cat {SUPERVISOR_PID})"
sv -w 10 force-shutdown {SERVICES}/*
rm -rf {STATE} /usr/local/lib/tailrack /usr/local/sbin/tailrack-leave /var/lib/tailrack/tailnet*
rmdir /var/lib/tailrack
"""


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
    granted = named().granted_name
    if granted != host:
        # The next run asks for the name again.
        attempt("tailscale", "logout")
        files.remove(RECORD)
        raise name_is_taken(host, granted)
    files.write(RECORD, membership)


def pod_leave(step: Step) -> None:
    """Give up the membership, and remove the cluster's files when it has ended."""
    remove_keys()
    files.remove(SOURCE_LIST)
    files.remove(KEYRING)
    files.make_folder(PRIVATE, 0o700)
    # The SSH session would wait for a process that has its output.
    log = files.open_to_write(f"{LOG_DIR}/leaving.log", 0o644)
    words = ("flock", "-o", f"{PRIVATE}/{_LEAVING}.lock", "sh", "-c", _LOG_OUT, "log-out", str(os.getpid()))
    run.begin(*words, output=log)
    os.close(log)


def let_leaving_end(host: str) -> None:
    """Wait for a logout that is still running."""
    try:
        Lock(_LEAVING, seconds=_LOGOUT_SECONDS).release()
    except Failure:
        raise Failure(
            f"{host} has been leaving a tailnet for {_LOGOUT_SECONDS}s", f"see 'tailscale status' on {host}"
        ) from None
