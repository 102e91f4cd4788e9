"""What a site says of its fabric: a kind of value, which every kind of site has a key of."""

import re
from typing import Annotated

from pydantic import AfterValidator

from components.settings.network_names import INTERFACE, ON_THE_TAILNET
from components.settings.types import refuse


def _fabric(value: str) -> str:
    if value in ("tailscale0", "lo"):
        refuse("is no network of the site's own", "it is not known what is meant", f"write {ON_THE_TAILNET}, or auto")
    if not re.fullmatch(INTERFACE, value):
        refuse("is not the name of a network interface, of 15 characters at most")
    return value


Fabric = Annotated[str, AfterValidator(_fabric)]
