"""The C target: a header-only predictor, a library around it for the simulators, and a self-test.

One prediction is nested ``if`` statements (``branches``) or an AND of leaf masks (``bitvector``), for all inputs or for
those outside of the hot box (``hot_branches``, ``hot_bitvector``); many are predicted one after the other (``rows``) or
with a row per SIMD lane (``lanes``). Without a measurement the form of one is chosen by what the model knows of its
training rows (:mod:`foretail.export.c.forms`), and many are predicted in lanes (``python -m benchmarks export_c``).
"""

from __future__ import annotations

import re
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Literal, cast, get_args

import numpy as np
import numpy.typing as npt

from foretail.core.errors import ForetailError
from foretail.export.c.build import PredictorLibrary, compile_library, run_program, vector_widths
from foretail.export.c.forms import choose, choose_batch, tune
from foretail.export.c.reader import read_c
from foretail.export.c.shapes import MAX_LANE_LEAVES, Bitvectors, HotBox, Trees
from foretail.export.c.text import Batch, Header, Single, render_library, render_selftest
from foretail.export.folder import check_name, encoded
from foretail.export.proof import Lowered, ProofError, Run
from foretail.export.target import Files, Loaded, Rendered
from foretail.models.ensemble.boxes import leaf_boxes
from foretail.models.ensemble.cells import Cells
from foretail.models.ensemble.ensemble import Ensemble

TUNING = "tuning.json"
_TUNED = "the fastest on the rows of the dataset"
_FORMS = re.compile(
    rf"^ \* One prediction: ({'|'.join(get_args(Single))}), ([\w .,:%]+)\.\n \* Many: ({'|'.join(get_args(Batch))})\. ",
    re.MULTILINE,
)
_SELFTEST_ROWS = 256


@dataclass(frozen=True, eq=False)
class C:
    """The C target; its files are ``<name>.h``, ``<name>.c``, ``<name>_selftest.c`` and the library ``<name>.so``.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from foretail.export.target import export
    >>> from foretail.models.drop.sharing_rule import SharingRule
    >>> rule = SharingRule(17, 229, 136, 176).ensemble(cell_bytes=256)
    >>> with TemporaryDirectory() as folder:
    ...     export(rule, C(), Path(folder) / "rule").file(".h").name
    'drop_predictor.h'
    """

    #: code of one prediction; ``auto``: the fastest on `tune_rows`, else the cheapest by the visits of training rows,
    #: else bitvectors where their tables stay small
    shape: Single | Literal["auto"] = "auto"
    batch: Batch | Literal["auto"] = "auto"  #: code of many; ``auto``: the fastest on `tune_rows`, or lanes
    #: int64[rows, features] or None, rows of a trace in the order of arrival; the measurements are the report, and
    #: ``tuning.json``
    tune_rows: npt.NDArray[np.int64] | None = None
    name: ClassVar[str] = "c"

    def render(self, lowered: Lowered, prefix: str, max_cells: int) -> Rendered:
        """Write the texts, in the forms that are fastest on `tune_rows`."""
        ensemble = lowered.ensemble
        if self.tune_rows is None:
            return Rendered(encoded(render_c(ensemble, prefix, shape=self.shape, batch=self.batch)))
        forms = candidates(ensemble, prefix, self.shape, self.batch)
        tuning = tune(forms, ensemble.checked_inputs(self.tune_rows))
        texts = _texts(replace(forms[tuning.single, tuning.batch], reason=_TUNED))
        return Rendered(encoded({**texts, TUNING: tuning.to_json()}), report=TUNING)

    def load(self, ensemble: Ensemble, files: Files) -> Loaded:
        """Read the texts back, compile them, and run the self-test.

        The library takes the widest SIMD code that this CPU has; the plain C and the narrower SIMD code are built and
        run on their own, without much optimisation, because large models take a compiler seconds.
        """
        name = next(file.removesuffix(".h") for file in files if file.endswith(".h"))
        text = files[f"{name}.h"].decode("ascii")
        header = stated(ensemble, name, text)
        read = read_c(header, text, files[f"{name}.c"].decode("ascii"))
        runs: dict[str, Run] = {}
        with tempfile.TemporaryDirectory() as folder_name:
            folder = Path(folder_name)
            for file, content in files.items():
                (folder / file).write_bytes(content)
            source, library = folder / f"{name}.c", folder / f"{name}.so"
            command = compile_library(source, library)
            predictor = PredictorLibrary(library)
            _check_info(ensemble, predictor)
            runs["score"], runs["score_batch"] = predictor.score_each, predictor.score
            for vector in _variants(header):
                compile_library(source, folder / f"{vector}.so", "-O1", f"-D{name.upper()}_VECTOR={vector}")
                variant = PredictorLibrary(folder / f"{vector}.so")
                if vector == 0:
                    runs["score in plain C"] = variant.score_each
                else:
                    runs[f"score_batch in {vector} bits"] = variant.score
            passes = run_program(folder / f"{name}_selftest.c") == 0
            tool = f"{command}; ran {', '.join(runs)}"
            return Loaded(read, runs, tool, {library.name: library.read_bytes()}, passes)


def render_c(
    ensemble: Ensemble,
    name: str = "drop_predictor",
    *,
    shape: Single | Literal["auto"] = "auto",
    batch: Batch | Literal["auto"] = "auto",
) -> dict[str, str]:
    """Return the generated files, name -> text: ``<name>.h``, ``<name>.c`` and ``<name>_selftest.c``.

    Equal ensembles and settings give equal texts. The ensemble must have votes.
    """
    check_name(name)
    return _texts(_header(ensemble, name, shape, batch))


def candidates(
    ensemble: Ensemble, name: str, shape: Single | Literal["auto"], batch: Batch | Literal["auto"]
) -> dict[tuple[Single, Batch], Header]:
    """Return a header for every pair of forms that the settings leave open and that can hold the model."""
    headers, refusal = {}, None
    for single in get_args(Single) if shape == "auto" else (shape,):
        for many in get_args(Batch) if batch == "auto" else (batch,):
            try:
                headers[single, many] = _header(ensemble, name, single, many)
            except ForetailError as error:
                refusal = error
    if not headers and refusal is not None:
        raise refusal
    return headers


def stated(ensemble: Ensemble, name: str, text: str) -> Header:
    """Return what a header must state about the ensemble, in the forms and for the reason that it says it has.

    ProofError when it says none.
    """
    forms = _FORMS.search(text)
    if forms is None:
        raise ProofError("the exported C does not say in which forms it is: report this as a bug")
    single, reason, batch = forms.groups()
    return Header(name, ensemble, cast(Single, single), reason, cast(Batch, batch))


def _texts(header: Header) -> dict[str, str]:
    name, ensemble = header.name, header.ensemble
    rows = _selftest_rows(ensemble)
    if header.hot is not None:  # and blocks of which two thirds are in the hot box
        rows = np.concatenate([rows, np.where(np.arange(len(rows))[:, np.newaxis] % 3, header.hot.low, rows)])
    return {
        f"{name}.h": header.text(),
        f"{name}.c": render_library(name, ensemble.features),
        f"{name}_selftest.c": render_selftest(name, rows, ensemble.score(rows)),
    }


def _header(ensemble: Ensemble, name: str, shape: Single | Literal["auto"], batch: Batch | Literal["auto"]) -> Header:
    ensemble.require_votes()
    trees, bitvectors, hot, reason = Trees.of(ensemble), None, None, "as c.shape asks for it"
    if not shape.endswith("branches"):
        try:
            bitvectors = Bitvectors.of(ensemble)
        except ForetailError:
            if shape != "auto":
                raise
    if shape not in ("branches", "bitvector"):
        hot = HotBox.of(ensemble)
        if hot is None and shape != "auto":
            raise ForetailError(f"the model does not say how often its leaves were visited: leave out shape={shape}")
    if shape == "auto":
        shape, reason = choose(ensemble, bitvectors, hot)
    if batch == "auto":
        batch = choose_batch(ensemble, bitvectors, hot if shape.startswith("hot_") else None)
    elif batch == "hot_lanes" and not shape.startswith("hot_"):
        raise ForetailError(f"batch=hot_lanes shares the hot box of a single prediction: set shape=hot_{shape}")
    elif batch != "rows" and trees.leaves > MAX_LANE_LEAVES:
        raise ForetailError(
            f"a tree has {trees.leaves} leaves, more than the {MAX_LANE_LEAVES} of batch={batch}: choose batch=rows"
        )
    used_trees = trees if batch != "rows" or shape.endswith("branches") else None
    used_bitvectors = bitvectors if shape.endswith("bitvector") else None
    used_box = hot if shape.startswith("hot_") else None
    return Header(name, ensemble, shape, reason, batch, used_trees, used_bitvectors, used_box)


def _variants(header: Header) -> tuple[int, ...]:
    """Return the vector widths whose code the library does not run on this CPU: plain C, and all but the widest."""
    lanes = vector_widths()[:-1] if header.batch != "rows" else ()
    return (0, *lanes) if header.single.endswith("bitvector") else lanes


def _selftest_rows(ensemble: Ensemble) -> npt.NDArray[np.int64]:
    """Return extreme inputs, corners of leaves and points of cells, int64[<= 256, features]."""
    corners = np.concatenate([leaf_boxes(tree, ensemble.features).corners for tree in ensemble.trees])
    random = np.random.default_rng(0)
    chosen = random.permutation(len(corners))[: _SELFTEST_ROWS // 2]
    sampled = Cells.of(ensemble).sample(_SELFTEST_ROWS // 2 - 2, random)
    top = [(1 << feature.bits) - 1 for feature in ensemble.features]
    return np.concatenate([[[0] * len(top), top], corners[chosen], sampled]).astype(np.int64)


def _check_info(ensemble: Ensemble, predictor: PredictorLibrary) -> None:
    stated = (predictor.features, predictor.default_tau, predictor.ir_sha256)
    if stated != (tuple((f.name, f.params) for f in ensemble.features), ensemble.default_tau, ensemble.sha256):
        raise ProofError(
            "the exported library states other features, tau or ensemble: nothing is exported, report this"
        )
