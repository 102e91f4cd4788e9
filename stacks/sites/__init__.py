"""Where machines come from. Each kind of site yields Hosts; from then on they are all the same."""

from importlib import import_module

from stacks.sites.kind import Kind, NodeSpec, Site

FOLDERS = ("lab", "hosts", "local", "aws")
KINDS: dict[str, Kind[Site, NodeSpec]] = {folder: import_module(f"{__name__}.{folder}").KIND for folder in FOLDERS}
