"""What an instance is told at its first boot: who may log in, and which host key it shows then. Pure."""

import json

# EC2 takes 16 KB before base64.
MOST_BYTES = 16 * 1024


def user_data(login_key: str, host_private_key: str, host_public_key: str) -> str:
    """Return cloud-init's user data (JSON is YAML).

    The private host key can be read from the metadata service by whoever runs on the instance, so it is for the first
    contact alone (stacks/sites/aws/host_key.sh). With `ssh_keys` given, cloud-init makes no others (cc_ssh.py).
    Raises ValueError where it is too long.
    """
    told = {
        "ssh_authorized_keys": [login_key],
        "ssh_deletekeys": True,
        "ssh_keys": {"ecdsa_private": host_private_key, "ecdsa_public": host_public_key},
        "disable_root": True,
        "ssh_pwauth": False,
    }
    text = "#cloud-config\n" + json.dumps(told, indent=1) + "\n"
    if len(text.encode()) > MOST_BYTES:
        raise ValueError(f"user data of {len(text.encode())} bytes, and EC2 takes {MOST_BYTES}")
    return text
