"""Jinja environment of the templates in components/; undefined names are errors, never empty text."""

from __future__ import annotations

from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

# No autoescape: these are configuration files, not web pages.
_ENVIRONMENT = Environment(  # noqa: S701
    loader=PackageLoader("components", package_path=""),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=False,
)


def render(path: str, **values: Any) -> str:
    """Return a template's text; `path` starts in components/. Raises jinja2.UndefinedError for a value it lacks."""
    return _ENVIRONMENT.get_template(path).render(**values)
