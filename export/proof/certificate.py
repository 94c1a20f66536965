"""The certificate: what was proven of exported files, and the error when it cannot be."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path
from typing import Literal

from foretail.core.errors import ForetailError
from foretail.core.json_text import parse_json
from foretail.export.folder import in_json


class ProofError(ForetailError):
    """Exported code or integer votes decide otherwise than the model; the message names an input."""


def at_most(number: Fraction) -> str:
    """Return a decimal of four digits that is at least the number."""
    text = f"{float(number):.3e}"
    return text if Fraction(text) >= number else f"{float(number) * 1.001:.3e}"


@dataclass(frozen=True)
class Certificate:
    """What was proven, and about which files."""

    target: str  #: ``c``, ``p4`` or ``onnx``
    #: ``cells``: model and artefact compared on one point of every cell. ``boxes``: every leaf box of every tree
    #: compared with every box of the text, and the votes with the leaf values.
    method: Literal["cells", "boxes"]
    cells: int  #: number of cells, enumerated or not
    points_per_feature: dict[str, int]  #: intervals of every input; their product is `cells`
    boxes: int | None  #: boxes of the text, with ``boxes``
    #: how scores were compared with the exact sums of the model, in the same two ways
    votes_by: Literal["cells", "boxes"]
    order: bool  #: score strictly monotone in the exact sum over all inputs: the proof holds for any tau
    taus: list[int] | None  #: the only taus it holds for; None with `order` and with `rounding`
    #: with votes that were compared by boxes and are not exact, a dyadic rational: any tau decides as its threshold on
    #: the exact sum does, for every input whose exact sum is farther from it than this. Never more than the rounding of
    #: the framework's own sum.
    rounding: str | None
    default_tau: int
    threshold: str  #: the threshold on the exact sum that `default_tau` stands for, as in the ensemble file
    vote_bits: int
    #: cells where the framework's sum, rounded in tree order, decides otherwise than the exact sum; None when votes
    #: were compared by boxes, which does not enumerate them
    float_decides_otherwise: int | None
    #: cells so close to the threshold that some order of rounding could decide otherwise
    float_within_rounding: int | None
    float_inputs: list[list[int]]  #: inputs of the first ten such cells
    passes: list[dict[str, str | int]]  #: what the passes did, in order: name, leaves_before, leaves_after
    model_sha256: str  #: the ensemble that was given
    ir_sha256: str  #: the ensemble that was emitted, votes included, after the passes
    outputs: dict[str, str]  #: file name -> SHA-256 of the proven texts and of what was built from them
    tool: str  #: what the proven artefact was built or run with

    def to_json(self) -> str:
        return in_json("foretail.certificate", 2, asdict(self))

    @classmethod
    def load(cls, path: Path) -> Certificate:
        """Read a certificate; raise ForetailError when it is missing or malformed."""
        try:
            document = parse_json(path.read_bytes())
            if (document.pop("schema"), document.pop("version")) != ("foretail.certificate", 2):
                raise ValueError("another schema")
            return cls(**document)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            raise ForetailError(f"{path} is not a certificate of version 2: export the model again") from None

    def check_tau(self, tau: int) -> None:
        """Raise ForetailError unless the proof covers decisions ``score > tau``."""
        if self.taus is not None and tau not in self.taus:
            raise ForetailError(
                f"the certificate of ensemble {self.ir_sha256[:12]} does not cover tau {tau}, only {self.taus}: "
                f"set the threshold before exporting and export again"
            )
