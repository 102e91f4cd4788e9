"""User data for the first boot of an instance: the log-in key, and the first host key. Pure."""

import json

# EC2 allows 16 KB before base64.
MOST_BYTES = 16 * 1024


def user_data(login_key: str, host_private_key: str, host_public_key: str, *, root: bool = False) -> str:
    """Return cloud-init's user data (JSON is YAML). Raises ValueError if it is too long.

    Every process on the instance can read the private host key from the metadata service, so it is only for the first
    connection (stacks/sites/rented/host_key.py). Because of `ssh_keys`, cloud-init creates no other keys (cc_ssh.py).

    root   root logs in; else cloud-init sends root's log-ins to the image's account
    """
    config = {
        "ssh_authorized_keys": [login_key],
        "ssh_deletekeys": True,
        "ssh_keys": {"ecdsa_private": host_private_key, "ecdsa_public": host_public_key},
        "disable_root": not root,
        "ssh_pwauth": False,
    }
    text = "#cloud-config\n" + json.dumps(config, indent=1) + "\n"
    if len(text.encode()) > MOST_BYTES:
        raise ValueError(f"the user data has {len(text.encode())} bytes, but EC2 allows {MOST_BYTES}")
    return text
