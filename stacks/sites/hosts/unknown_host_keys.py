"""Machines of hosts sites without a verified host key."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from components.settings.problems import Report, child_path
from stacks.sites.hosts.bastions import hops_of
from stacks.sites.hosts.inventory import complete
from stacks.yaml_file import FileError


@dataclass(frozen=True)
class UnverifiedHost:
    """A machine without a key in the config. file: the place for its key; key: its answer, else why_not the reason."""

    name: str
    address: str
    port: int
    file: Path
    bastions: Sequence[Mapping[str, Any]]
    key: str = ""
    why_not: str = ""

    @property
    def line(self) -> str:
        """Return its line for known_hosts."""
        name = self.address if self.port == 22 else f"[{self.address}]:{self.port}"
        return f"{name} {self.key}\n"


def unverified_hosts(raw: Mapping[str, object], base_dir: Path) -> list[UnverifiedHost]:
    """Return the machines of all hosts sites without a host key. Raises FileError if a site has no file for keys."""
    report = Report(frozenset())
    sites = raw.get("sites")
    unverified = []
    for index, site in enumerate(sites if isinstance(sites, list) else []):
        if not isinstance(site, Mapping) or site.get("kind") != "hosts":
            continue
        expanded = complete(site, child_path("tailrack:sites", index), base_dir, report)
        if report.problems:
            raise FileError(str(next(iter(report.problems))))
        hosts = expanded.get("hosts")
        for host in hosts if isinstance(hosts, list) else []:
            if not isinstance(host, Mapping) or host.get("host_key") or not isinstance(host.get("address"), str):
                continue
            if not isinstance(file := site.get("known_hosts_file"), str):
                raise FileError(
                    f"tailrack:sites[{index}]: known_hosts_file is missing, so there is no place for host keys; write "
                    "`known_hosts_file: known_hosts` for the site"
                )
            port = host.get("port", 22)
            unverified.append(
                UnverifiedHost(
                    str(host.get("name")),
                    str(host["address"]).lower().rstrip("."),
                    port if isinstance(port, int) else 22,
                    base_dir / Path(file).expanduser(),
                    hops_of(site),
                )
            )
    return unverified
