"""The dev site: a tailnet control server and machines as systemd containers in networks that cannot reach each other.

The product reaches these machines by SSH as it would reach rented ones, and knows nothing of this package;
`python -m lab --help` lists the commands, which read one JSON object and print one JSON line.

Machines are containers with six capabilities: virtual machines need nested virtualisation, and `--privileged` fails on
hosts that lack a capability. The control server (lab/control) enforces no policy, and asks for an auth key only on a
second port, so it does not replace a test with Tailscale's own.
"""
