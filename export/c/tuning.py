"""Choosing the forms of generated C by measuring them on the user's rows."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from foretail.core.errors import ForetailError
from foretail.export.c.build import PredictorLibrary, compile_library, vector_widths
from foretail.export.c.text import Batch, Header, Single, render_library
from foretail.export.folder import in_json

ROUNDS = 31
MAX_ROWS = 50_000


@dataclass(frozen=True)
class Tuning:
    """What was measured and chosen."""

    single: Single  #: the form that was chosen
    batch: Batch  #: the same
    #: ``single`` and ``batch`` -> form -> thread CPU time per row, median over the rounds
    nanoseconds: Mapping[str, Mapping[str, float]]
    rows: int
    rounds: int
    vector_widths: list[int]  #: SIMD widths of this CPU, among 256 and 512 bits
    command: str  #: what built the code that was measured

    def to_json(self) -> str:
        """Return the text of ``tuning.json``."""
        return in_json("foretail.tuning", 1, asdict(self))


def tune(headers: Mapping[tuple[Single, Batch], Header], rows: npt.NDArray[np.int64]) -> Tuning:
    """Time every form, one after the other in every round, on the first 50,000 rows; ForetailError without rows.

    `rows`, int64[rows, features], are in the order in which packets arrive: branches are predicted from what came
    before.
    """
    if not len(rows):
        raise ForetailError("there are no rows to tune on: give the rows of a recorded trace")
    used = np.ascontiguousarray(rows[:MAX_ROWS])
    command, libraries = "", {}
    with tempfile.TemporaryDirectory() as name:
        for index, (form, header) in enumerate(headers.items()):
            folder = Path(name) / str(index)
            folder.mkdir()
            (folder / f"{header.name}.h").write_text(header.text(), encoding="ascii")
            source = folder / f"{header.name}.c"
            source.write_text(render_library(header.name, header.ensemble.features), encoding="ascii")
            command = compile_library(source, folder / "tuned.so")
            libraries[form] = PredictorLibrary(folder / "tuned.so")
    times: dict[tuple[Single, Batch], list[tuple[float, float]]] = {form: [] for form in libraries}
    for _ in range(ROUNDS):
        for form, library in libraries.items():
            times[form].append(library.nanoseconds(used))
    # A form of one kind is measured with every form of the other that it can be with: the fastest counts.
    medians = {form: [statistics.median(kind) for kind in zip(*spent, strict=True)] for form, spent in times.items()}
    single: dict[Single, float] = {}
    for (one, _), (spent_on_one, _) in medians.items():
        single[one] = min(spent_on_one, single.get(one, spent_on_one))
    chosen = min(single, key=lambda form: single[form])
    batch: dict[Batch, float] = {many: spent for (one, many), (_, spent) in medians.items() if one == chosen}
    return Tuning(
        single=chosen,
        batch=min(batch, key=lambda form: batch[form]),
        nanoseconds={"single": dict[str, float](single.items()), "batch": dict[str, float](batch.items())},
        rows=len(used),
        rounds=ROUNDS,
        vector_widths=list(vector_widths()),
        command=command,
    )
