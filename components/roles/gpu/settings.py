"""The section `fabric`: settings of the machines' fast network."""

from components.settings.section import Section, key, yes_no


class Roce(Section):
    """RDMA over Ethernet (RoCE)."""

    apply: bool = yes_no(
        "on every node, set the MTU of RoCE ports to 9216, and ATS_ENABLED in the firmware of their adapters; "
        "preflight reports missing settings either way",
        False,
    )


class Fabric(Section):
    """The machines' fast network."""

    roce: Roce = key("RDMA over Ethernet", default=Roce())
