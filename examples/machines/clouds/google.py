"""Google Compute Engine. Needs `gcp:project` and `gcp:zone`, and a network `default` that lets SSH in."""

import pulumi
import pulumi_gcp as gcp


def rent(name: str, config: pulumi.Config, login_key: str, user_data: pulumi.Input[str]) -> pulumi.Output[str]:
    """Declare a machine and return its public address; by default one A100, at the on-demand price."""
    spot = config.get_bool("spot") or False
    image = config.get("image") or "ubuntu-os-cloud/ubuntu-2404-lts-amd64"
    instance = gcp.compute.Instance(
        name,
        name=name,
        machine_type=config.get("type") or "a2-highgpu-1g",
        boot_disk=gcp.compute.InstanceBootDiskArgs(
            initialize_params=gcp.compute.InstanceBootDiskInitializeParamsArgs(image=image, size=100),
        ),
        network_interfaces=[
            gcp.compute.InstanceNetworkInterfaceArgs(
                network="default", access_configs=[gcp.compute.InstanceNetworkInterfaceAccessConfigArgs()]
            )
        ],
        # A machine with GPUs cannot move to another host for maintenance.
        scheduling=gcp.compute.InstanceSchedulingArgs(
            on_host_maintenance="TERMINATE",
            automatic_restart=not spot,
            preemptible=spot,
            provisioning_model="SPOT" if spot else "STANDARD",
        ),
        metadata={"user-data": user_data},
    )
    address: pulumi.Output[str] = instance.network_interfaces[0].access_configs[0].nat_ip
    return address
