"""The texts around a schedule."""

from __future__ import annotations

from functools import cache
from importlib import resources

import jinja2

__all__ = ["render"]


def render(name: str, **values: int | str) -> str:
    """Return the template ``export/templates/<name>`` with these values in it."""
    return _environment().get_template(name).render(values)


@cache
def _environment() -> jinja2.Environment:
    templates = resources.files("foretail.export") / "templates"
    return jinja2.Environment(
        loader=jinja2.FunctionLoader(lambda name: (templates / name).read_text(encoding="ascii")),
        undefined=jinja2.StrictUndefined,
        autoescape=False,  # C and P4, not HTML; all values are numbers
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
