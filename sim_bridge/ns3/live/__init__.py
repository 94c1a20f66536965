"""Credence in ns-3 with a predictor in Python that decides live, one packet at a time.

The simulator loads a library that asks through two pipes, so the driver is the one that exported predictors use.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from foretail.core.errors import ForetailError
from foretail.features.catalog import feature, training_columns
from foretail.sim_bridge.builds import ROOM, cached, compiler, first_error, run_compiler, sources_digest
from foretail.sim_bridge.ns3.driver import DriverRun, run_driver
from foretail.sim_bridge.open_loop.live import CheckedPredictor
from foretail.sim_bridge.policies import ASKING

_SOURCE, _LIBRARY = "predictor.cc", "live_predictor.so"
_QUESTIONS, _ANSWERS = "questions", "answers"


@dataclass(frozen=True)
class LiveDriverRun:
    """A simulation in which Python decided.

    Attributes
    ----------
    run : DriverRun
        Its output.
    asked, drops : int
        How often the predictor was asked, and how often it said drop.
    exportable : bool
        Always False: there is no code for a switch and no proof of it.
    """

    run: DriverRun
    asked: int
    drops: int
    exportable: ClassVar[bool] = False


def run_live_driver(
    settings: Mapping[str, Any],
    folder: Path,
    predictor: Any,
    features: Sequence[str],
    *,
    threshold: float = 0.5,
    executable: Path | None = None,
) -> LiveDriverRun:
    """Run one simulation; wherever a switch asks, `predictor` answers before the simulation goes on.

    Parameters
    ----------
    settings : mapping
        The driver's document, of a policy that asks; its ``policy.library`` is set here. ``features.average_shift``
        has to be a number where a feature is an average.
    folder : Path
        An existing folder for the output.
    predictor : callable, PyTorch module, or estimator of scikit-learn or XGBoost
        As in :func:`foretail.sim_bridge.open_loop.live.run_live`, always asked about one row.
    features : sequence of str
        Columns that the predictor sees, in this order.
    threshold : float
        Of numbers: 0.5 suits probabilities, 0 logits.
    executable : Path, optional
        The driver; built or found in the cache by default.

    Raises
    ------
    ForetailError
        As `run_live` does; also when the simulation fails.
    """
    if settings["policy"]["name"] not in ASKING:
        raise ForetailError(f"policy {settings['policy']['name']!r} asks no predictor: use {' or '.join(ASKING)}")
    names = list(training_columns(features, own_queues=True))
    answer = CheckedPredictor(predictor, threshold)
    with tempfile.TemporaryDirectory(prefix="foretail-live-") as place:
        library = Path(shutil.copy(_library(names, settings["features"]), place))
        for pipe in (_QUESTIONS, _ANSWERS):
            os.mkfifo(Path(place) / pipe, 0o600)
        served = _Service(Path(place), len(names), answer)
        policy = {**settings["policy"], "library": str(library), "predictor": "library"}
        served.start()
        try:
            run = run_driver({**settings, "policy": policy}, folder, executable=executable)
        except ForetailError as error:
            served.end()
            raise served.error or error from None
        finally:
            served.end()
    return LiveDriverRun(run, served.asked, served.drops)


class _Service(threading.Thread):
    """Answers the questions of one simulation until its end of the pipe closes."""

    def __init__(self, place: Path, features: int, answer: CheckedPredictor) -> None:
        super().__init__(daemon=True)
        self.asked = self.drops = 0
        self.error: BaseException | None = None
        self._place, self._row_bytes, self._answer = place, 8 * features, answer

    def run(self) -> None:
        answers = os.open(self._place / _ANSWERS, os.O_RDWR)  # for reading too, because that waits for nobody
        questions = os.open(self._place / _QUESTIONS, os.O_RDONLY)
        try:
            while len(row := os.read(questions, self._row_bytes)) == self._row_bytes:
                drop = bool(self._answer(np.frombuffer(row, np.int64).astype(np.int32)[None, :])[0])
                self.asked += 1
                self.drops += drop
                os.write(answers, b"\1" if drop else b"\0")
        except BaseException as error:  # whatever the predictor raises belongs to the caller
            self.error = error
        finally:
            os.close(questions)
            os.close(answers)

    def end(self) -> None:
        """Wait until all is answered; a simulation that never opened the pipe opened it now."""
        while self.is_alive():
            with suppress(OSError):  # nobody reads, not yet or not any more
                os.close(os.open(self._place / _QUESTIONS, os.O_WRONLY | os.O_NONBLOCK))
            self.join(0.1)


def _library(names: Sequence[str], scale: Mapping[str, Any]) -> Path:
    """The library that asks for these features, compiled once."""
    shift = scale["average_shift"]
    params = [feature(name).params(scale["cell_bytes"], 0 if shift is None else shift) for name in names]
    if shift is None and any("average_shift" in each for each in params):
        raise ForetailError("features.average_shift is null: set it to the shift that the predictor was trained on")

    def build(folder: Path) -> None:
        literals = {"FEATURE_NAMES": names, "FEATURE_PARAMS": params}
        defined = [f"-D{name}=" + ",".join(f'"{text}"' for text in texts) for name, texts in literals.items()]
        options = ["-std=c++20", "-O2", "-fPIC", "-shared", "-I", str(ROOM)]
        command = [compiler(), *options, *defined, str(Path(__file__).with_name(_SOURCE)), "-o", str(folder / _LIBRARY)]
        errors = run_compiler(command)
        if errors is not None:
            raise ForetailError(f"the live predictor does not compile: {first_error(errors)}")

    return cached("live-predictor", _LIBRARY, [sources_digest("buffer", "ns3"), names, params], build)
