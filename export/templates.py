"""Templates of generated text: a value that is missing is an error."""

from __future__ import annotations

from collections.abc import Callable
from importlib import resources

import jinja2


def environment(package: str, **filters: Callable[..., str]) -> jinja2.Environment:
    """Return the templates in ``templates/`` of a target's `package`, with more `filters`.

    Nothing is escaped, because C and P4 are no HTML: every name is checked where it comes in, or by a filter.
    """
    folder = resources.files(package) / "templates"
    made = jinja2.Environment(
        loader=jinja2.FunctionLoader(lambda name: (folder / name).read_text(encoding="ascii")),
        undefined=jinja2.StrictUndefined,
        autoescape=False,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters.update(filters)
    return made
