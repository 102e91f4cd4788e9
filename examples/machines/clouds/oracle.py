"""Oracle Cloud. Needs `compartment`, `availability_domain`, `image` and `subnet`, which must let SSH in."""

import base64

import pulumi
import pulumi_oci as oci


def rent(name: str, config: pulumi.Config, login_key: str, user_data: pulumi.Input[str]) -> pulumi.Output[str]:
    """Declare a machine and return its public address; by default one A10."""
    core = oci.core
    preemptible = None
    if config.get_bool("spot"):
        end = core.InstancePreemptibleInstanceConfigPreemptionActionArgs(type="TERMINATE", preserve_boot_volume=False)
        preemptible = core.InstancePreemptibleInstanceConfigArgs(preemption_action=end)
    encoded = pulumi.Output.from_input(user_data).apply(lambda text: base64.b64encode(text.encode()).decode())
    instance = core.Instance(
        name,
        display_name=name,
        compartment_id=config.require("compartment"),
        availability_domain=config.require("availability_domain"),
        shape=config.get("type") or "VM.GPU.A10.1",
        source_details=core.InstanceSourceDetailsArgs(source_type="image", source_id=config.require("image")),
        create_vnic_details=core.InstanceCreateVnicDetailsArgs(
            subnet_id=config.require("subnet"), assign_public_ip="true"
        ),
        preemptible_instance_config=preemptible,
        metadata={"user_data": encoded},
    )
    address: pulumi.Output[str] = instance.public_ip
    return address
