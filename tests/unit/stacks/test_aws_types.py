"""What the program reads from the names of instance types, and EFA's layout, held against EC2's own table.

The table is what DescribeInstanceTypes has answered, as moto keeps it.
"""

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from stacks.sites.aws.efa import interfaces
from stacks.sites.aws.instance_types import has_nvidia_gpus

Table = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def table() -> Table:
    moto = pytest.importorskip("moto", reason="TYPES OF AWS ARE NOT TESTED: moto is missing; make setup-dev")
    with gzip.open(Path(moto.__file__).parent / "ec2/resources/instance_types.json.gz") as file:
        found: Table = json.load(file)
    assert len(found) > 1000
    return found


def test_every_card_of_a_gpu_type_takes_the_interfaces_that_are_laid_on_it(table: Table) -> None:
    networks = {name: of["NetworkInfo"] for name, of in table.items() if has_nvidia_gpus(name)}
    with_efa = {name: network for name, network in networks.items() if network["EfaSupported"]}
    assert {"p5.48xlarge", "p6-b300.48xlarge", "g6.8xlarge"} <= with_efa.keys()
    for name, network in with_efa.items():
        cards = {card["NetworkCardIndex"]: card for card in network["NetworkCards"]}
        laid = interfaces(name, network["EfaInfo"]["MaximumEfaInterfaces"], "subnet", "group")
        for one in laid:
            taken = cards[one["network_card_index"]]["InterfaceTypes"]
            assert one.get("interface_type", "interface") in taken, (name, one)
        for card, count in Counter(one["network_card_index"] for one in laid).items():
            assert count <= cards[card]["MaximumNetworkInterfaces"], (name, card)
        assert len(laid) <= network["MaximumNetworkInterfaces"], name
