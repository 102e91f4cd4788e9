"""Azure. Needs `azure-native:location`, and `ssh_from`: the addresses that may log in, such as 192.0.2.0/24."""

import base64

import pulumi
import pulumi_azure_native as azure
from first_boot import USER
from pulumi_azure_native import compute, network


def rent(name: str, config: pulumi.Config, login_key: str, user_data: pulumi.Input[str]) -> pulumi.Output[str]:
    """Declare a machine with a network of its own and return its public address; by default one A100."""
    group = azure.resources.ResourceGroup(name).name
    firewall = network.NetworkSecurityGroup(
        name,
        resource_group_name=group,
        security_rules=[
            network.SecurityRuleArgs(
                name="ssh",
                priority=100,
                direction="Inbound",
                access="Allow",
                protocol="Tcp",
                source_address_prefix=config.require("ssh_from"),
                source_port_range="*",
                destination_address_prefix="*",
                destination_port_range="22",
            )
        ],
    )
    lan = network.VirtualNetwork(
        name,
        resource_group_name=group,
        address_space=network.AddressSpaceArgs(address_prefixes=["10.0.0.0/16"]),
        subnets=[network.SubnetArgs(name="machines", address_prefix="10.0.0.0/24")],
    )
    public = network.PublicIPAddress(
        name,
        resource_group_name=group,
        sku=network.PublicIPAddressSkuArgs(name="Standard"),
        public_ip_allocation_method="Static",
    )
    card = network.NetworkInterface(
        name,
        resource_group_name=group,
        network_security_group=network.NetworkSecurityGroupArgs(id=firewall.id),
        ip_configurations=[
            network.NetworkInterfaceIPConfigurationArgs(
                name="main",
                subnet=network.SubnetArgs(id=lan.subnets.apply(lambda subnets: (subnets or [])[0].id)),
                public_ip_address=network.PublicIPAddressArgs(id=public.id),
            )
        ],
    )
    login = compute.SshPublicKeyArgs(path=f"/home/{USER}/.ssh/authorized_keys", key_data=login_key)
    compute.VirtualMachine(
        name,
        resource_group_name=group,
        hardware_profile=compute.HardwareProfileArgs(vm_size=config.get("type") or "Standard_NC24ads_A100_v4"),
        priority="Spot" if config.get_bool("spot") else "Regular",
        os_profile=compute.OSProfileArgs(
            computer_name=name,
            admin_username=USER,
            custom_data=pulumi.Output.from_input(user_data).apply(
                lambda text: base64.b64encode(text.encode()).decode()
            ),
            linux_configuration=compute.LinuxConfigurationArgs(
                disable_password_authentication=True,
                ssh=compute.SshConfigurationArgs(public_keys=[login]),
            ),
        ),
        storage_profile=compute.StorageProfileArgs(
            image_reference=compute.ImageReferenceArgs(
                publisher="Canonical", offer="ubuntu-24_04-lts", sku=config.get("image") or "server", version="latest"
            ),
            os_disk=compute.OSDiskArgs(create_option="FromImage", delete_option="Delete", disk_size_gb=100),
        ),
        network_profile=compute.NetworkProfileArgs(
            network_interfaces=[compute.NetworkInterfaceReferenceArgs(id=card.id)]
        ),
    )
    address: pulumi.Output[str] = public.ip_address.apply(lambda address: address or "")
    return address
