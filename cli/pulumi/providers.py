"""Print each <name> of requirements/<name>.txt that a stack file needs: `python -m cli.pulumi.providers FILE`."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from components.roles.network.tailnet.settings import derived_kind
from stacks.yaml_file import FileError, read_yaml

PROJECT = Path(__file__).resolve().parents[2]


def providers(config: Mapping[str, Any]) -> list[str]:
    """Return the kinds of sites and tailnet in a stack's config that need additional packages."""
    sites, tailnet = config.get("tailrack:sites"), config.get("tailrack:tailnet")
    kinds = [site.get("kind") for site in sites if isinstance(site, dict)] if isinstance(sites, list) else []
    if isinstance(tailnet, dict):
        kinds.append(tailnet.get("kind") or derived_kind(tailnet.keys(), brought=False))
    candidates = {kind for kind in kinds if isinstance(kind, str) and kind.isalnum()}
    return sorted(kind for kind in candidates if (PROJECT / "requirements" / f"{kind}.txt").is_file())


def main(file: Path) -> None:
    """Print the names for a stack's file; nothing if it cannot be read, which the command itself reports."""
    try:
        config = read_yaml(file).get("config")
    except FileError:
        return
    print(*providers(config if isinstance(config, dict) else {}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
