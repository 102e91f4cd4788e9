"""What a site says of its fabric: a kind of value, which every kind of site has a key of."""

import re
from typing import Annotated

from pydantic import AfterValidator

from components.settings.types import refuse

AUTO, TAILNET = "auto", "tailnet"
# Also the characters that /sys and Slurm's files take as they are; 15 are the kernel's limit.
_INTERFACE = r"[A-Za-z][A-Za-z0-9_.-]{0,14}"


def _fabric(value: str) -> str:
    if value in ("tailscale0", "lo"):
        refuse("is no network of the site's own", "it is not known what is meant", f"write {TAILNET}, or auto")
    if not re.fullmatch(_INTERFACE, value):
        refuse("is not the name of a network interface, of 15 characters at most")
    return value


Fabric = Annotated[str, AfterValidator(_fabric)]
