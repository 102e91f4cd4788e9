"""The network interfaces of an instance with EFA, as AWS lays them out. Pure.

Source: docs.aws.amazon.com/AWSEC2, "Maximize network bandwidth with EFA" (efa-acc-inst-types). The primary interface
cannot be EFA alone, and it is the one with an address. An interface that is EFA alone has no IP address at all.
"""

from typing import Any

# Types whose first network card has no EFA: their EFA interfaces start at card 1.
_FIRST_CARD_WITHOUT = ("p6-b300.",)


def interfaces(instance_type: str, most: int, subnet: str, group: str) -> list[dict[str, Any]]:
    """Return the launch template's interfaces, the primary one first.

    most   EFA interfaces that the type has (DescribeInstanceTypes, efa_maximum_interfaces). Raises ValueError for 0.
    """
    if most < 1:
        raise ValueError(f"instances of type {instance_type} have no EFA; take `efa` out of the pool")
    bare = instance_type.startswith(_FIRST_CARD_WITHOUT)
    cards = range(1, most + 1) if bare else range(most)
    # On the first card the primary interface is device 0.
    efa = [_interface(card, 1 if card == 0 else 0, subnet, group, "efa-only") for card in cards]
    return [_interface(0, 0, subnet, group), *efa]


def _interface(card: int, device: int, subnet: str, group: str, kind: str | None = None) -> dict[str, Any]:
    made: dict[str, Any] = {
        "network_card_index": card,
        "device_index": device,
        "subnet_id": subnet,
        "security_groups": [group],
        "delete_on_termination": "true",
    }
    return made if kind is None else {**made, "interface_type": kind}
