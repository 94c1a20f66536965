"""Neural drop predictors for other programs: C in integers with a proven error bound."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np
import numpy.typing as npt

from foretail.core.json_text import parse_json
from foretail.export.folder import check_folder, check_name, digests, encoded, in_json, write_export
from foretail.export.network.c_header import prove_network, render_network
from foretail.export.network.fixed_point import FixedNetwork, fixed_network
from foretail.export.proof import at_most
from foretail.models.drop.network import Network
from foretail.models.scoring.metrics import Confusion

__all__ = ["NETWORK", "NetworkCertificate", "export_network", "fixed_network"]

NETWORK = "model.onnx"

SCHEMA = "foretail.network_certificate"
AGAINST = "the logit of the float32 numbers of model.onnx in exact arithmetic, not in the rounding of a framework"


@dataclass(frozen=True)
class OnRows:
    """Decisions of an exported network on given rows."""

    rows: int
    decide_otherwise: int  #: rows on which C and onnxruntime, with its float32, decide differently
    out_of_range: int  #: rows with an input above the largest in range
    probability_difference: float  #: the largest on a row, from onnxruntime's
    f1: float | None  #: of the C, on the rows' labels
    network_f1: float | None  #: of onnxruntime, likewise


@dataclass(frozen=True)
class NetworkCertificate:
    """The facts known about an exported network, and the files that they are about."""

    target: str  #: {'c'}
    #: {'quantised'}, scores are the network's logits in integers, `error_logit` is proven for every input in range, and
    #: every decision is the network's wherever its exact logit is further than that from the threshold's
    method: str
    against: str  #: what the error is counted from
    error_logit: str  #: a decimal; no score is farther from the exact logit
    error_probability: str  #: the same of the probability: a quarter of it, which is the steepest slope
    layer_errors: list[str]  #: the bound after each layer, of its sums
    largest: dict[str, int]  #: by feature: the largest input in range; what is above counts as this
    score_bits: int  #: scores are in units of ``2**-score_bits``
    default_tau: int  #: ``score > default_tau`` means drop
    threshold: str  #: the network's probability threshold, in hexadecimal
    multiplications: int  #: of a prediction
    table_bytes: int  #: of all constants
    on_rows: OnRows | None  #: what was found on given rows, which is not a proof
    network_sha256: str  #: of ``model.onnx``, the network that was given
    outputs: dict[str, str]  #: file name -> SHA-256
    tool: str  #: what built the library

    def to_json(self) -> str:
        return in_json(SCHEMA, 1, asdict(self))

    @classmethod
    def load(cls, path: Path) -> NetworkCertificate:
        """Read ``certificate.json`` of an export that the store keeps."""
        document = parse_json(path.read_text(encoding="utf-8"))
        rows = document["on_rows"]
        values = {field.name: document[field.name] for field in fields(cls)}
        return cls(**{**values, "on_rows": None if rows is None else OnRows(**rows)})


def export_network(
    network: Network,
    out_dir: Path,
    name: str = "drop_predictor",
    *,
    input_bits: Mapping[str, int] | None = None,
    rows: tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]] | None = None,
) -> NetworkCertificate:
    """Write a network as C in integers, read it back and compare; nothing is written when that fails.

    ProofError when what was written differs from the integers. ForetailError on an unsafe name, a network that C cannot
    hold, a missing compiler, or an `out_dir` that holds something else.

    Parameters
    ----------
    network : of dense layers, over one arrival
    out_dir : Path
        Created, or replaced when it holds an earlier export; gets the C files, the library, ``model.onnx`` and
        ``certificate.json``.
    name : prefix of files and C names: a lower-case letter, then lower-case letters, digits and underscores
    input_bits : see :func:`fixed_network`
    rows : (int64[rows, features], bool[rows]), inputs and labels on which decisions are compared
    """
    check_name(name)
    check_folder(out_dir)
    fixed = fixed_network(network, input_bits)
    texts = render_network(fixed, network.sha256, name)
    built = prove_network(fixed, network.sha256, texts, name, None if rows is None else rows[0])
    files = {**encoded(texts), f"{name}.so": built.library, NETWORK: network.content}
    certificate = NetworkCertificate(
        target="c",
        method="quantised",
        against=AGAINST,
        error_logit=at_most(fixed.error),
        error_probability=at_most(fixed.error / 4),
        layer_errors=[at_most(layer.error) for layer in fixed.layers],
        largest=dict(zip((item.name for item in fixed.features), fixed.largest, strict=True)),
        score_bits=fixed.bits,
        default_tau=fixed.tau,
        threshold=network.threshold.hex(),
        multiplications=fixed.multiplications,
        table_bytes=fixed.table_bytes,
        on_rows=None if rows is None or built.scores is None else _on_rows(network, fixed, built.scores, *rows),
        network_sha256=network.sha256,
        outputs=digests(files),
        tool=built.tool,
    )
    write_export(out_dir, files, certificate)
    return certificate


def _on_rows(
    network: Network,
    fixed: FixedNetwork,
    scores: npt.NDArray[np.int64],
    x: npt.NDArray[np.int64],
    lqd_drop: npt.NDArray[np.bool_],
) -> OnRows:
    from scipy.special import expit

    probability = network.probability(x)
    drops, wanted = scores > fixed.tau, probability > network.threshold
    return OnRows(
        rows=len(x),
        decide_otherwise=int((drops != wanted).sum()),
        out_of_range=int((x > np.array(fixed.largest)).any(axis=1).sum()),
        probability_difference=float(
            np.abs(expit(np.ldexp(scores.astype(np.float64), -fixed.bits)) - probability).max(initial=0)
        ),
        f1=Confusion.count(lqd_drop, drops).f1,
        network_f1=Confusion.count(lqd_drop, wanted).f1,
    )
