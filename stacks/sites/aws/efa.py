"""Network interfaces of an EFA instance, in AWS's layout. Pure.

Source: docs.aws.amazon.com/AWSEC2, "Maximize network bandwidth with EFA" (efa-acc-inst-types). The primary interface
has the IP address and cannot be EFA-only. EFA-only interfaces have no IP address.
"""

from typing import Any

# Types whose first network card has no EFA: their EFA interfaces start at card 1.
_FIRST_CARD_WITHOUT = ("p6-b300.",)


def interfaces(instance_type: str, most: int, subnet: str, group: str) -> list[dict[str, Any]]:
    """Return the launch template's interfaces, the primary one first. Raises ValueError if the type has no EFA.

    most   number of EFA interfaces of the type (DescribeInstanceTypes, efa_maximum_interfaces)
    """
    if most < 1:
        raise ValueError(f"instances of type {instance_type} have no EFA; remove `efa` from the pool")
    bare = instance_type.startswith(_FIRST_CARD_WITHOUT)
    cards = range(1, most + 1) if bare else range(most)
    # On the first card, device 0 is the primary interface.
    efa = [_interface(card, 1 if card == 0 else 0, subnet, group, "efa-only") for card in cards]
    return [_interface(0, 0, subnet, group), *efa]


def _interface(card: int, device: int, subnet: str, group: str, kind: str | None = None) -> dict[str, Any]:
    interface: dict[str, Any] = {
        "network_card_index": card,
        "device_index": device,
        "subnet_id": subnet,
        "security_groups": [group],
        "delete_on_termination": "true",
    }
    return interface if kind is None else {**interface, "interface_type": kind}
