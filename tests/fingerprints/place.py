"""Where fingerprints are computed: a folder for scratch files, and runs of ns-3 that several groups look at."""

from __future__ import annotations

import functools
import json
import tempfile
from pathlib import Path
from typing import Any

from foretail.features.dataset.reader import Dataset
from foretail.features.records import ARRIVAL_DTYPE, Records, read_records
from foretail.sim_bridge.native.driver import write_trace
from foretail.sim_bridge.ns3.driver import DriverRun, build_driver, run_driver
from tests.scenarios import MILLISECOND, settings


class Place:
    """Makes folders below one, and simulates every scenario once."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._runs: dict[str, DriverRun] = {}
        self._datasets: dict[str, Dataset] = {}

    @functools.cached_property
    def driver(self) -> Path:
        """The ns-3 driver."""
        return build_driver()

    def folder(self) -> Path:
        """Return a new empty folder."""
        return Path(tempfile.mkdtemp(dir=self._root))

    def run(self, **changes: Any) -> DriverRun:
        """Return the traced run of the tiny scenario with changes, 2 ms of traffic."""
        document = settings(**{"trace": True, "traffic_ns": 2 * MILLISECOND, **changes})
        key = json.dumps(document)
        if key not in self._runs:
            self._runs[key] = run_driver(document, self.folder(), executable=self.driver)
        return self._runs[key]

    def arrivals(self, **changes: Any) -> Records:
        """Return the arrivals of such a run."""
        return read_records(self.run(**changes).folder / "arrivals.bin", ARRIVAL_DTYPE)

    def dataset(self, **changes: Any) -> Dataset:
        """Return the labelled dataset of such a run."""
        document = settings(**{"trace": True, "traffic_ns": 2 * MILLISECOND, **changes})
        key = json.dumps(document)
        if key not in self._datasets:
            path = self.folder() / "dataset"
            write_trace(self.run(**changes), document, path, scenario=settings())
            self._datasets[key] = Dataset.open(path)
        return self._datasets[key]
