"""The transport is what the output proves, and unknown otherwise."""

import time

import pytest
import yaml

from components.validation.transport import Transport, read_transport
from tests.unit.components.validation.test_verdict import FIXTURES, output_of


def log(*messages: str, host: str = "gpu-0") -> str:
    return "".join(f"{host}:591:603 [0] NCCL INFO {message}\n" for message in messages)


SEND = "Channel 00/0 : 1[0] -> 0[0] [send] via NET"
RECEIVE = "Channel 00/0 : 8[0] -> 0[0] [receive] via NET"
P2P = "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read"
RING = "Pattern 4, crossNic 0, nChannels 12, bw 30.000000/30.000000, type {}/PIX, sameChannels 1"
IB = "NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eno1:10.20.0.4<0>"
ROCE = "NET/IB : Using [0]mlx5_0:1/RoCE [RO]; OOB eno1:10.20.0.4<0>"


@pytest.mark.parametrize(
    ("name", "transport"),
    [
        ("nccl-tests-2.19-2x1-H200-socket-eth0", Transport("sockets", "eth0")),
        ("nccl-tests-2.19-2x1-H200-socket-tailscale0", Transport("sockets", "tailscale0")),
        ("nccl-tests-2.19-2x8-ib-gdrdma", Transport("InfiniBand + GPUDirect RDMA", "mlx5_1")),
        ("nccl-tests-2.19-2x8-roce", Transport("RoCE", "mlx5_bond_0")),
        ("nccl-tests-2.19-2x1-torn-row", Transport("sockets", "ens5")),
        ("mpi-cpu-2x1-tcp-eth0", Transport("TCP", "eth0")),
        ("tcp-cpu-2x1-lan0", Transport("TCP", "lan0")),
    ],
)
def test_between_two_nodes_the_network_used_is_named_with_its_interface(name, transport):
    assert read_transport(output_of(name), nodes=2) == transport


@pytest.mark.parametrize(
    ("messages", "transport"),
    [
        ([P2P, RING.format("NVL")], Transport("NVLink", None)),
        ([P2P, RING.format("NVB")], Transport("NVLink", None)),
        ([P2P, RING.format("PHB")], Transport("P2P over PCIe", None)),
        ([P2P], Transport("P2P", None)),
        (["Channel 00/0 : 0[0] -> 1[1] via P2P/MNNVL"], Transport("NVLink", None)),
        (["Channel 00 : 0[0] -> 1[1] via SHM/direct/direct"], Transport("SHM", None)),
        (["Channel 00 : 0[1b] -> 1[1c] via direct shared memory"], Transport("SHM", None)),
        ([P2P, "Channel 01 : 1[1] -> 2[2] via SHM/direct"], Transport("P2P, SHM", None)),
        ([], Transport(None, None)),
    ],
)
def test_inside_a_node_the_way_between_gpus_is_named_as_far_as_it_is_proven(messages, transport):
    assert read_transport(log(*messages), nodes=1) == transport


@pytest.mark.parametrize(
    ("messages", "transport"),
    [
        ([IB, f"{SEND}/IB/0/GDRDMA"], ("InfiniBand + GPUDirect RDMA", "mlx5_0")),
        ([IB, f"{SEND}/IB/1(3)/GDRDMA(PCI)/Shared"], ("InfiniBand + GPUDirect RDMA", "mlx5_1")),
        ([ROCE, "Channel 00 : 1[1b] -> 0[1b] [receive] via NET/IB/0"], ("RoCE", "mlx5_0")),
        ([ROCE, f"{SEND}/IB/4/GDRDMA"], ("RoCE + GPUDirect RDMA", None)),
        ([f"{SEND}/IB/0/GDRDMA"], ("IB verbs + GPUDirect RDMA", None)),
        ([f"{SEND}/AWS Libfabric/0/GDRDMA"], ("Libfabric + GPUDirect RDMA", None)),
        ([f"{SEND}/OFI/0/GDRDMA"], ("Libfabric + GPUDirect RDMA", None)),
        ([f"{RECEIVE}/Libfabric/0/GDRDMA(PCI)/Shared"], ("Libfabric + GPUDirect RDMA", None)),
        (["CollNet 00/0 : 1 [send] via COLLNET/SHARP/0/GDRDMA"], ("COLLNET SHARP + GPUDirect RDMA", None)),
        ([IB, f"{SEND}/IB/0/GDRDMA", f"{SEND}/IB/1"], ("InfiniBand, InfiniBand + GPUDirect RDMA", "mlx5_0,mlx5_1")),
        (["Channel 00/0 : 0[0] -> 8[0] via P2P/MNNVL"], ("NVLink", None)),
        ([P2P, RING.format("NVL")], (None, None)),
        (["Using network IB", IB], (None, None)),
    ],
)
def test_between_nodes_only_a_channel_through_the_network_proves_a_transport(messages, transport):
    assert read_transport(log(*messages), nodes=2) == Transport(*transport)


MPI = output_of("mpi-cpu-2x1-tcp-eth0")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("eth0 sent 291687904 of", "eth0 sent 4096 of"),
        ("eth0 sent 291687904 of", "unknown of"),
        ("tcp interface eth0 10.99.0.2", "unknown, no IPv4 address on interface 'eth0': No such device"),
    ],
)
def test_mpi_traffic_that_the_interface_did_not_carry_leaves_the_transport_unknown(old, new):
    assert old in MPI
    assert read_transport(MPI.replace(old, new), nodes=2) == Transport(None, None)


@pytest.mark.parametrize("words", yaml.safe_load((FIXTURES / "long-lines.yaml").read_text(encoding="utf-8")))
@pytest.mark.parametrize("nodes", [1, 2])
def test_a_long_line_of_a_users_own_making_is_read_as_fast_as_many_short_ones(words, nodes):
    before, again, after = words.replace("}", "{").split("{")
    text = f"a1:1:2 [0] NCCL INFO x\n{before}{again * (200_000 // len(again))}{after}\n"
    begin = time.process_time()
    read_transport(text, nodes)
    # Some hundredths of a second; where each place of the line led to a look at all the rest of it, it was 16.
    assert time.process_time() - begin < 3
