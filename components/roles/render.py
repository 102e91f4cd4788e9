"""Render the Jinja templates in components/. An undefined name is an error, never empty text."""

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
    """Return the rendered template; `path` starts in components/. Raises jinja2.UndefinedError for a missing value."""
    return _ENVIRONMENT.get_template(path).render(**values)
