"""Rent machines at one cloud and export them as hosts of a tailrack site (README.md)."""

from importlib import import_module

import pulumi
import pulumi_tls as tls
from first_boot import user_data

config = pulumi.Config("machines")
cloud = import_module(f"clouds.{config.require('cloud')}")
login_key = config.require("login_key")
hosts = []
for number in range(1, (config.get_int("count") or 1) + 1):
    name = f"{pulumi.get_stack()}-{number}"
    host_key = tls.PrivateKey(f"{name}-host-key", algorithm="ED25519")
    address = cloud.rent(name, config, login_key, user_data(host_key, login_key))
    hosts.append({"name": name, "address": address, "host_key": host_key.public_key_openssh.apply(str.strip)})
pulumi.export("hosts", hosts)
