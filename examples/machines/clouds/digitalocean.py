"""DigitalOcean. Needs `ssh_key`: your key there, by its ID or fingerprint. The account is root."""

import pulumi
import pulumi_digitalocean as digitalocean


def rent(name: str, config: pulumi.Config, login_key: str, user_data: pulumi.Input[str]) -> pulumi.Output[str]:
    """Declare a Droplet and return its public address; by default one H100, whose image has the driver."""
    # Without a key, DigitalOcean mails a root password.
    key = config.require("ssh_key")
    droplet = digitalocean.Droplet(
        name,
        name=name,
        size=config.get("type") or "gpu-h100x1-80gb",
        region=config.get("location") or "tor1",
        image=config.get("image") or "gpu-h100x1-base",
        ssh_keys=[key],
        user_data=user_data,
    )
    address: pulumi.Output[str] = droplet.ipv4_address
    return address
