"""The documentation site: ``make docs`` builds it from the repository, with warnings as errors and no network.

The pages are the Markdown files as they are on a Git host, README first, and ``docs/reference/api``, made from
docstrings. So the source folder is the repository, and this file alone is named with ``-c docs``.
"""

from __future__ import annotations

import builtins
import dataclasses
import re
import shutil
import sys
from importlib import import_module, metadata
from importlib.util import find_spec
from operator import attrgetter
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging

sys.path.insert(0, str(Path(__file__).parent))  # for generated.py and glossary_links.py

TUTORIAL, GALLERY = "docs/tutorial", "docs/gallery"
"""Where sphinx-gallery writes the pages of examples/, with what each cell printed and drew; git ignores both."""

ONE_SENTENCE = ("attribute", "data", "property")
AS_WRITTEN: dict[str, list[str]] = {}
"""What napoleon is not to change, by name."""

project = "Foretail"
release = metadata.version("foretail")
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
    "generated",
    "glossary_links",
]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
root_doc = "README"
include_patterns = [
    *(
        "README.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
        "docs/*/*.md",
        "docs/reference/api/*.rst",
        f"{TUTORIAL}/*.rst",
        f"{GALLERY}/*.rst",
        "docs/reference/generated/*.md",
    )
]
exclude_patterns = [".*", "build", "outputs", "tests"]  # not even walked through

sphinx_gallery_conf = {
    "examples_dirs": ["examples/tutorial", "examples/gallery"],
    "gallery_dirs": [TUTORIAL, GALLERY],
    "filename_pattern": r"\.py$",  # all of them run
    "within_subsection_order": "FileNameSortKey",
    "abort_on_example_error": True,
    "show_memory": False,
    "min_reported_time": 3600,  # no page of times
    "write_computation_times": False,
    "show_signature": False,
}
myst_heading_anchors = 3  # links such as train.md#features
suppress_warnings = ["ref.python"]  # an annotation `Split` may mean either of two classes; roles: resolve_imported

copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True  # prompts of Python and of the shell are not copied

default_role = "literal"  # `name` in a docstring is a parameter
napoleon_google_docstring = False
napoleon_use_param = False
napoleon_use_rtype = False
napoleon_use_ivar = True
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_default_options = {"members": True}
autodoc_type_aliases = {"npt.ArrayLike": "ArrayLike", "npt.NDArray": "NDArray"}
autodoc_preserve_defaults = True
maximum_signature_line_length = 100
python_use_unqualified_type_names = True
add_module_names = False

highlight_language = "none"  # a block without a language is a command or its output
html_theme = "furo"
html_title = "Foretail"
html_copy_source = False
html_show_copyright = False
html_show_sphinx = False
small_code = {"code-font-size": "75%"}  # lines of 100 letters fit beside both sidebars
html_theme_options = {"navigation_with_keys": True, "light_css_variables": small_code}
html_static_path = ["site.css"]
html_css_files = ["site.css"]

CONTENTS = """

```{toctree}
:hidden:
:caption: Manual

Foretail <self>
Home <docs/guide/index>
docs/guide/install
First predictor <docs/guide/first-predictor>
docs/guide/concepts
docs/guide/data
docs/guide/train
docs/guide/export
Benchmark <docs/guide/benchmark>
docs/guide/extend
Vermilion <docs/guide/vermilion>
```

```{toctree}
:hidden:
:caption: Examples

docs/tutorial/index
docs/gallery/index
```

```{toctree}
:hidden:
:caption: Reference

docs/reference/generated/commands
docs/reference/generated/experiments
docs/reference/generated/features
docs/reference/generated/policies
docs/reference/formats
docs/reference/glossary
Metrics <docs/reference/metrics>
Limits <docs/reference/limits>
Native network <docs/reference/native>
ns-3 driver <docs/reference/driver>
Emulator <docs/reference/emulator>
Ensemble file <docs/reference/ensemble>
```

```{toctree}
:hidden:
:caption: Python API

docs/reference/generated/api
docs/reference/api/core
docs/reference/api/features
docs/reference/api/models
docs/reference/api/export
docs/reference/api/gym
docs/reference/api/sim_bridge
docs/reference/api/testing
docs/reference/api/pipelines
docs/reference/api/configs
```

```{toctree}
:hidden:
:caption: Reports

docs/reports/prediction
Sharing policies <docs/reports/sharing>
Last packets <docs/reports/last-packets>
Theory <docs/reports/theory>
Circuits <docs/reports/circuits>
Fifteen systems <docs/reports/systems>
docs/reports/tofino
Data <docs/data/index>
```

```{toctree}
:hidden:
:caption: Design

docs/design/design
docs/design/networks
docs/design/proofs
docs/design/export
docs/design/reliability
docs/design/speed
docs/design/tools
CONTRIBUTING
SECURITY
CHANGELOG
```
"""


def add_contents(app: Sphinx, page: str, source: list[str]) -> None:
    """Append the table of contents to the README, which a Git host would show as text."""
    if page == root_doc:
        source[0] += CONTENTS


def leave_out_fields(
    app: Sphinx, what: str, name: str, kind: Any, options: Any, signature: str | None, returned: str | None
) -> tuple[str | None, str | None] | None:
    """A dataclass needs no signature: its fields are listed below it."""
    return ("", None) if what == "class" and dataclasses.is_dataclass(kind) else None


def part_entries(app: Sphinx, what: str, name: str, kind: Any, options: Any, lines: list[str]) -> None:
    """Show ``name : what it is`` on one line as a name with its description; napoleon would take it for a type."""
    if what in ONE_SENTENCE:
        AS_WRITTEN[name] = list(lines)
        return
    parted: list[str] = []
    section = ""
    for line, after in zip(lines, [*lines[1:], ""], strict=False):
        section = line if after.startswith("---") else section
        entry = re.fullmatch(r"(\w[\w, ]*) : (.+)", line)
        if entry is None:
            parted.append(line)
            continue
        names = re.sub(r"_(?=,|$)", r"\_", entry[1])  # RST would take the name for a link
        if after.startswith("    "):
            parted.append(f"{names} : {entry[2]}")
        else:  # of several attributes in one field Sphinx would take the first for a type
            each = names.split(", ") if section == "Attributes" else [names]
            parted += [part for one in each for part in (one, f"    {entry[2]}")]
    lines[:] = parted


def keep_sentences(app: Sphinx, what: str, name: str, kind: Any, options: Any, lines: list[str]) -> None:
    """Show what is written beside a field as it is; napoleon takes what stands before a colon for a type."""
    if what in ONE_SENTENCE:
        lines[:] = AS_WRITTEN.pop(name)


def name_bases(app: Sphinx, what: str, name: str, kind: Any, options: Any, lines: list[str]) -> None:
    """Say what a class is a kind of, where that is a class of ours that the pages show."""
    if what == "class" and isinstance(kind, type):
        bases = [base for base in kind.__bases__ if base.__module__.startswith("foretail.") and base.__name__[0] != "_"]
        lines += (
            ["", "Base: " + ", ".join(f":class:`~{base.__module__}.{base.__name__}`" for base in bases)]
            if bases
            else []
        )


def list_settings(app: Sphinx, what: str, name: str, kind: Any, options: Any, lines: list[str]) -> None:
    """List the settings of a config node with what their fields say: meaning, range and default."""
    if what != "class" or not (name.startswith("foretail.configs.schema.") and dataclasses.is_dataclass(kind)):
        return
    for field in dataclasses.fields(kind):
        if not field.metadata:
            continue
        about = [field.metadata["doc"]]
        limits = {"at_least": ">=", "above": ">", "at_most": "<="}
        bounds = [
            f"{sign} {field.metadata[key]:,}" for key, sign in limits.items() if field.metadata.get(key) is not None
        ]
        bounds += ["a power of two"] if field.metadata.get("power_of_two") else []
        if choices := field.metadata.get("one_of"):
            bounds.append("one of " + ", ".join(f"``{choice}``" for choice in choices))
        default = field.default if field.default is not dataclasses.MISSING else None
        if isinstance(default, (int, float, str)) and default not in ("", "???"):
            bounds.append(f"default ``{default}``")
        about += [f"({', '.join(bounds)})"] if bounds else []
        lines += ["", f"``{field.name}``", f"   {' '.join(about)}"]
    lines.append("")


def resolve_imported(app: Sphinx, env: BuildEnvironment, node: pending_xref, content: nodes.TextElement) -> Any:
    """Link a name that the docstring's own module has imported, and warn of a role that names nothing at all."""
    if node.get("refdomain") != "py":
        return None
    target = node["reftarget"]
    try:
        found = attrgetter(target)(import_module(node["py:module"]))  # a page kept from before imports none
    except (KeyError, AttributeError):
        known = hasattr(builtins, target) or find_spec(target.partition(".")[0]) is not None
        if isinstance(content, nodes.literal) and not known:
            logging.getLogger(__name__).warning("no such object: %s", target, location=node)
        return None
    name = f"{getattr(found, '__module__', '')}.{getattr(found, '__qualname__', '')}"
    return env.domains["py"].resolve_xref(env, node["refdoc"], app.builder, node["reftype"], name, node, content)


def add_index(app: Sphinx, error: Exception | None) -> None:
    """Let the folder itself open on the README."""
    if error is None:
        shutil.copyfile(Path(app.outdir) / "README.html", Path(app.outdir) / "index.html")


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect what Sphinx calls."""
    app.connect("source-read", add_contents)
    app.connect("autodoc-process-signature", leave_out_fields)
    app.connect("autodoc-process-docstring", part_entries, priority=400)  # before napoleon
    app.connect("autodoc-process-docstring", keep_sentences, priority=600)  # behind it
    app.connect("autodoc-process-docstring", name_bases)
    app.connect("autodoc-process-docstring", list_settings)
    app.connect("missing-reference", resolve_imported)
    app.connect("build-finished", add_index)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
