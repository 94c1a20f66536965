"""What leaves Foretail: passes over the ensemble IR, proofs of equivalence, and code for simulators and switches."""

from foretail.export.c.build import PredictorLibrary
from foretail.export.c.target import C
from foretail.export.lowered import Lowered
from foretail.export.onnx.target import Onnx
from foretail.export.p4.target import P4
from foretail.export.passes.passes import lower
from foretail.export.passes.votes import with_votes
from foretail.export.proof.certificate import Certificate, ProofError
from foretail.export.target import ExportResult, Target, export, prove_files

__all__ = [
    "P4",
    "C",
    "Certificate",
    "ExportResult",
    "Lowered",
    "Onnx",
    "PredictorLibrary",
    "ProofError",
    "Target",
    "export",
    "lower",
    "prove_files",
    "with_votes",
]
