"""The section `mlflow`: MLflow's port and its package source."""

from typing import Annotated

from pydantic import Field

from components.settings.section import Section, key
from components.settings.types import FOLDER, HOST_PORT, Port, full, must, without_slash

PORT = 5000
_INDEX = rf"https://{HOST_PORT}(/[A-Za-z0-9_~%+.-]+)*/?"
Index = Annotated[
    str,
    Field(max_length=300),
    must(full("[^@]*"), "contains a log-in, which everyone who reads the config could use"),
    must(full(f"{_INDEX}|{FOLDER}"), "is neither an https:// address nor the absolute path of a folder"),
    without_slash,
]


class Mlflow(Section):
    """MLflow's tracking server on the head node; off without this section."""

    port: Port = PORT
    """TCP port of MLflow on the head node's tailnet address."""
    index: Index | None = key("an address or a path", "write https://HOST/simple or /wheels", "", "pip's", default=None)
    """Package source for pip on the head node: the address of a package index, or a folder there with the wheels."""
