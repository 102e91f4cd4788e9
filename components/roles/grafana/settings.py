"""What `monitoring.grafana` of the config says: which Grafana, where it comes from, and where it answers."""

import re
from typing import Annotated

from pydantic import AfterValidator, Field

from components.roles.monitoring.settings_ports import GRAFANA_PORT, Port
from components.settings.section import Section, key, number
from components.settings.types import Checksum


def _archive(value: str) -> str:
    if not re.fullmatch(r"(https?://[A-Za-z0-9.-]+(:[0-9]{1,5})?)?(/[A-Za-z0-9._~+-]+)+[.]tar[.]gz", value):
        raise ValueError("neither an address nor a path")
    return value


Archive = Annotated[str, Field(max_length=300), AfterValidator(_archive)]


class Grafana(Section):
    """Grafana on the head node. No distribution has it and no release is brought along: the config names one."""

    source: Archive = key(
        "where Grafana's own archive for Linux comes from: the address of the .tar.gz that its download page names, or "
        "its path on the head node",
        wants="an address or a path that ends with .tar.gz",
        breaks="there would be nothing to install",
        fix="write the one of Grafana's download page, for linux-amd64 or linux-arm64 as the head node is",
    )
    sha256: Checksum = key(
        "SHA-256 of that archive, from the same page",
        wants="64 lowercase digits",
        breaks="whatever comes from there would be run",
        fix="write the sum that the download page shows",
    )
    port: Port = number(
        "TCP port of the head node's tailnet address at which Grafana answers",
        1024,
        65535,
        breaks="Grafana would not start",
        fix=f"write {GRAFANA_PORT}, or another free port",
        default=GRAFANA_PORT,
    )
