"""What tests in BMv2 share: their mark, because its tools are in no package registry, and what else they ask of it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from foretail.export.p4.bmv2 import TOOLS, SimpleSwitch, free_port

_Test = TypeVar("_Test", bound=Callable[..., None])

_MISSING = [tool for tool in TOOLS if shutil.which(tool) is None]


def needs_p4_tools(test: _Test) -> _Test:
    """Mark a test with ``p4``, and skip it where a tool is missing."""
    reason = f"{', '.join(_MISSING)} not on PATH: docs/guide/install.md says how to build p4c and BMv2"
    marked: _Test = pytest.mark.skipif(bool(_MISSING), reason=reason)(pytest.mark.p4(test))
    return marked


class GrpcSwitch(SimpleSwitch):
    """A simple_switch_grpc that waits for a program by P4Runtime, at `address` under `device_id`."""

    def __init__(self, folder: Path) -> None:
        super().__init__(Path(), folder)
        self.address = f"127.0.0.1:{free_port()}"

    @property
    def device_id(self) -> int:
        return self._thrift

    def _command_line(self) -> list[str]:
        _, *options, _ = super()._command_line()
        return ["simple_switch_grpc", *options, "--no-p4", "--", "--grpc-server-addr", self.address]
