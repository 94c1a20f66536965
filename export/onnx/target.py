"""The ONNX target: one graph, ``<name>.onnx``, run in onnxruntime."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import metadata
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from foretail.export.proof import Lowered, ProofError
from foretail.export.target import Files, Loaded, Rendered
from foretail.models.ensemble.ensemble import Ensemble

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Onnx:
    """The ONNX target; its packages are an extra, and are loaded only now."""

    name: ClassVar[str] = "onnx"

    def render(self, lowered: Lowered, prefix: str, max_cells: int) -> Rendered:
        """Write the graph; ForetailError when votes are so wide that ONNX cannot add them in 64 bits."""
        from foretail.export.onnx.graph import render_onnx

        return Rendered({f"{prefix}.onnx": render_onnx(lowered.ensemble, prefix)})

    def load(self, ensemble: Ensemble, files: Files) -> Loaded:
        """Read the graph back and run it, whose own decisions are compared as well."""
        from foretail.export.onnx.graph import OnnxPredictor, read_onnx

        (content,) = files.values()
        read = read_onnx(content, ensemble.features)
        predictor = OnnxPredictor(content)
        _, tau = ensemble.require_votes()
        if (predictor.ir_sha256, predictor.default_tau) != (ensemble.sha256, tau):
            raise ProofError(
                "the exported ONNX states another ensemble or tau: nothing is exported, report this as a bug"
            )

        def score(x: IntArray) -> IntArray:
            score, drop = predictor.run(x)
            if not np.array_equal(drop, score > tau):
                raise ProofError(
                    "the exported ONNX drops otherwise than by score > tau: nothing is exported, report this"
                )
            return score

        tool = f"onnxruntime {metadata.version('onnxruntime')}"
        return Loaded({"TreeEnsembleRegressor": read}, {"onnxruntime": score}, tool)
