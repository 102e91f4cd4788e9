"""Cloud-init's user data: the machine has a host key that this program made, and lets in one login key."""

import json
from typing import Any

import pulumi
import pulumi_tls as tls

USER = "ubuntu"  # the account of Ubuntu's images; at DigitalOcean it is root


def user_data(host_key: tls.PrivateKey, login_key: str) -> pulumi.Output[str]:
    """Return the user data, a secret. Every process on the machine can read it from the cloud's metadata service."""
    keys = {"private": host_key.private_key_openssh, "public": host_key.public_key_openssh}
    text: pulumi.Output[Any] = pulumi.Output.all(**keys).apply(
        lambda key: (
            "#cloud-config\n"
            + json.dumps(
                {
                    "ssh_deletekeys": True,
                    "ssh_keys": {"ed25519_private": key["private"], "ed25519_public": key["public"].strip()},
                    "ssh_authorized_keys": [login_key],
                    "ssh_pwauth": False,
                }
            )
        )
    )
    return pulumi.Output.secret(text)
