"""Folders of a pod."""

from components.node.locks import PRIVATE

# The provider's volume, which outlives the container and its disk.
VOLUME = "/workspace"
STATE = f"{VOLUME}/.tailrack"
TAILNET = f"{STATE}/tailscale"
PACKAGES = f"{STATE}/packages"
# The cluster's files of the container's disk, for the next container.
SAVED = f"{STATE}/saved"
BOOT = f"{STATE}/boot"
# Exists while the pod has all that jobs need.
READY = f"{PRIVATE}/pod-ready"
# Users' homes, which are on the share elsewhere.
HOMES = f"{VOLUME}/shared"
# tailscaled's proxy. Everything that listens on 127.0.0.1 is open to the tailnet, but not this address.
PROXY = "127.0.0.3:1055"
SOCKET = "/var/run/tailscale/tailscaled.sock"
# The SSH server for the head node's requests. The provider's server does not see who connects over the tailnet.
SSHD_PORT = 6815
