"""Jinja environment of the templates beside this file; undefined names are errors, never empty text."""

from __future__ import annotations

from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

# No autoescape: these are configuration files, not web pages.
_ENVIRONMENT = Environment(  # noqa: S701
    loader=PackageLoader("components.config_files"),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=False,
)


def render(template: str, **values: Any) -> str:
    """Return the text of `templates/<template>.j2`. Raises jinja2.UndefinedError for a value the template lacks."""
    return _ENVIRONMENT.get_template(f"{template}.j2").render(**values)
