"""Nebius. Needs `project` and `subnet` (their IDs)."""

import pulumi
import pulumi_nebius as nebius


def rent(name: str, config: pulumi.Config, login_key: str, user_data: pulumi.Input[str]) -> pulumi.Output[str]:
    """Declare a machine and return its public address; by default one H100 of a server with eight."""
    preemptible = nebius.ComputeV1InstancePreemptibleArgs(on_preemption="STOP") if config.get_bool("spot") else None
    instance = nebius.ComputeV1Instance(
        name,
        name=name,
        parent_id=config.require("project"),
        resources=nebius.ComputeV1InstanceResourcesArgs(
            platform=config.get("type") or "gpu-h100-sxm", preset=config.get("preset") or "1gpu-16vcpu-200gb"
        ),
        boot_disk=nebius.ComputeV1InstanceBootDiskArgs(
            attach_mode="READ_WRITE",
            managed_disk=nebius.ComputeV1InstanceBootDiskManagedDiskArgs(
                name=f"{name}-boot",
                spec=nebius.ComputeV1InstanceBootDiskManagedDiskSpecArgs(
                    type="NETWORK_SSD",
                    size_gibibytes=100,
                    source_image_family=nebius.ComputeV1InstanceBootDiskManagedDiskSpecSourceImageFamilyArgs(
                        image_family=config.get("image") or "ubuntu24.04-driverless"
                    ),
                ),
            ),
        ),
        network_interfaces=[
            nebius.ComputeV1InstanceNetworkInterfaceArgs(
                name="eth0",
                subnet_id=config.require("subnet"),
                ip_address=nebius.ComputeV1InstanceNetworkInterfaceIpAddressArgs(),
                public_ip_address=nebius.ComputeV1InstanceNetworkInterfacePublicIpAddressArgs(),
            )
        ],
        preemptible=preemptible,
        cloud_init_user_data=user_data,
    )
    # Nebius writes the address with its prefix, such as 192.0.2.1/32.
    address: pulumi.Output[str] = instance.status.apply(
        lambda status: status.network_interfaces[0].public_ip_address.address.split("/")[0]
    )
    return address
