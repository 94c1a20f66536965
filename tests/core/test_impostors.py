"""Pointers of Git LFS, web pages and compressed files in the place of a file are named by what they are."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from foretail.core.errors import ForetailError
from foretail.features.demand.logs import Steps, read_demand_logs
from foretail.features.demand.matrix import read_demand
from foretail.pipelines.tracking.loading import load_network
from foretail.sim_bridge.arrivals.files import ArrivalFile
from foretail.sim_bridge.imports.pcap.log import read_captures
from foretail.sim_bridge.imports.sonic.config import read_config

READERS: dict[str, Callable[[Path], object]] = {
    "capture": lambda path: read_captures(None, {0: path}, None, 2),
    "demand.csv": read_demand,
    "log.csv": lambda path: read_demand_logs([path], Steps()),
    "arrivals.csv": ArrivalFile,
    "network.onnx": load_network,
    "config_db.json": read_config,
}
IMPOSTORS = {
    b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n": "is a pointer of Git LFS .* git lfs pull",
    b"<!DOCTYPE html>\n<html lang='en'>": "is a web page and not the file itself",
    b"\xef\xbb\xbf\r\n <HTML>": "is a web page",
    gzip.compress(b"slot,port\n", mtime=0): r"is compressed \(gzip\): unpack it",
}


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("content", IMPOSTORS, ids=["pointer", "page", "capitals", "gzip"])
def test_what_lies_in_the_place_of_a_file_is_named(name: str, content: bytes, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ForetailError, match=re.escape(str(path)) + " " + IMPOSTORS[content]):
        READERS[name](path)
