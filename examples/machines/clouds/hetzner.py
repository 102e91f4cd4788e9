"""Hetzner Cloud, for head nodes, without GPUs. Needs `ssh_key`: your key there, by name. The account is root."""

import pulumi
import pulumi_hcloud as hcloud


def rent(name: str, config: pulumi.Config, login_key: str, user_data: pulumi.Input[str]) -> pulumi.Output[str]:
    """Declare a server and return its public address; by default four cores and 8 GB."""
    # Without a key, Hetzner mails a root password.
    key = config.require("ssh_key")
    server = hcloud.Server(
        name,
        name=name,
        server_type=config.get("type") or "cpx31",
        location=config.get("location") or "nbg1",
        image=config.get("image") or "debian-13",
        ssh_keys=[key],
        user_data=user_data,
    )
    address: pulumi.Output[str] = server.ipv4_address
    return address
