"""The section `monitoring.grafana`: which Grafana to install, and its port."""

import re
from typing import Annotated

from pydantic import AfterValidator, Field

from components.settings.section import Section, key, number
from components.settings.types import Checksum, Port

PORT = 3000


def _archive(value: str) -> str:
    if not re.fullmatch(r"(https?://[A-Za-z0-9.-]+(:[0-9]{1,5})?)?(/[A-Za-z0-9._~+-]+)+[.]tar[.]gz", value):
        raise ValueError("neither an address nor a path")
    return value


Archive = Annotated[str, Field(max_length=300), AfterValidator(_archive)]


class Grafana(Section):
    """Grafana on the head node. No distribution packages it, so the config names a release."""

    source: Archive = key(
        "Grafana's archive for Linux: the address of the .tar.gz on its download page, or a path on the head node",
        wants="an address or a path that ends with .tar.gz",
        breaks="there would be nothing to install",
        fix="copy the address from Grafana's download page: linux-amd64 or linux-arm64, like the head node",
    )
    sha256: Checksum = key(
        "SHA-256 of that archive, from the same page",
        wants="64 lowercase digits",
        breaks="an unverified program would run",
        fix="copy the checksum from the download page",
    )
    port: Port = number(
        "TCP port of Grafana on the head node's tailnet address",
        1024,
        65535,
        breaks="Grafana would not start",
        fix=f"write {PORT}, or another free port",
        default=PORT,
    )
