"""Subnets and addresses of the lab's networks."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab import subnets

ROUTES = """Iface	Destination	Gateway 	Flags	RefCnt	Use	Metric	Mask		MTU	Window	IRTT
eth0	00000000	010200C0	0003	0	0	0	00000000	0	0	0
docker0	000011AC	00000000	0001	0	0	0	0000FFFF	0	0	0
tun0	0100400A	00000000	0001	0	0	0	FFFFFFFF	0	0	0
"""


def test_host_routes_leave_out_the_default_route() -> None:
    assert [str(network) for network in subnets.host_routes(ROUTES)] == ["172.17.0.0/16", "10.64.0.1/32"]


@given(taken=st.sets(st.integers(min_value=3, max_value=254)))
def test_a_node_gets_the_lowest_free_address_above_the_reserved_ones(taken: set[int]) -> None:
    found = subnets.free_address("10.77.2.0/24", {f"10.77.2.{number}" for number in taken})
    free = [number for number in range(10, 255) if number not in taken]
    assert found == (f"10.77.2.{free[0]}" if free else None)


def test_a_full_subnet_gives_no_address() -> None:
    assert subnets.free_address("10.77.2.0/28", {f"10.77.2.{number}" for number in range(10, 15)}) is None


@pytest.mark.parametrize("subnet", ["10.77.2.0/24", "10.77.2.0/28"])
def test_the_control_server_is_inside_the_subnet_and_below_the_nodes(subnet: str) -> None:
    control = ipaddress.IPv4Address(subnets.control_address(subnet))
    first = subnets.free_address(subnet, set())
    assert control in ipaddress.IPv4Network(subnet)
    assert first is not None
    assert control < ipaddress.IPv4Address(first)
