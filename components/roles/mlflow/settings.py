"""The section `mlflow`: MLflow's port and its package source."""

import re
from typing import Annotated

from pydantic import AfterValidator, Field

from components.settings.section import Section, key
from components.settings.types import FOLDER, HOST, Port, refuse

PORT = 5000
_INDEX = re.compile(rf"https://{HOST}(:[1-9][0-9]{{0,4}})?(/[A-Za-z0-9_~%+.-]+)*/?")


def _index(value: str) -> str:
    if "@" in value:
        refuse("contains a log-in, which everyone who reads the config could use")
    if not (_INDEX.fullmatch(value) or re.fullmatch(FOLDER, value)):
        refuse("is neither an https:// address nor the absolute path of a folder, in plain characters")
    return value.rstrip("/")


class Mlflow(Section):
    """MLflow's tracking server on the head node; off without this section."""

    port: Port = PORT
    """TCP port of MLflow on the head node's tailnet address."""
    index: Annotated[str, Field(max_length=300), AfterValidator(_index)] | None = key(
        "an address or an absolute path", "write https://HOST/simple or /srv/wheels", default_text="pip's", default=None
    )
    """Package source for pip on the head node: the address of a package index, or a folder there with the wheels."""
