"""What may be set on the machines' fast network: the section `fabric`."""

from components.settings.section import Section, key, yes_no


class Roce(Section):
    """RDMA over Ethernet."""

    apply: bool = yes_no(
        "on every node, set the MTU of RoCE ports to 9216 and ATS_ENABLED in the firmware of their adapters; preflight "
        "says what is missing either way",
        False,
    )


class Fabric(Section):
    """The machines' fast network."""

    roce: Roce = key("RDMA over Ethernet", default=Roce())
