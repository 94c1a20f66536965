"""The mark of tests that need the P4 tools, which are in no package registry."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import TypeVar

import pytest

from foretail.export.p4.bmv2 import TOOLS

_Test = TypeVar("_Test", bound=Callable[..., None])

_MISSING = [tool for tool in TOOLS if shutil.which(tool) is None]


def needs_p4_tools(test: _Test) -> _Test:
    """Mark a test with ``p4``, and skip it where a tool is missing."""
    reason = f"{', '.join(_MISSING)} not on PATH: docs/guide/p4-demo.md says how to build p4c and BMv2"
    marked: _Test = pytest.mark.skipif(bool(_MISSING), reason=reason)(pytest.mark.p4(test))
    return marked
