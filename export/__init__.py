"""What leaves Foretail: passes over the ensemble IR, proofs of equivalence, and code for simulators and switches."""

from foretail.export.c.build import PredictorLibrary
from foretail.export.c.target import ExportResult, export_c
from foretail.export.p4 import export_p4
from foretail.export.passes.passes import lower
from foretail.export.passes.votes import with_votes
from foretail.export.proof.equivalence import Certificate, Lowered, ProofError

__all__ = [
    "Certificate",
    "ExportResult",
    "Lowered",
    "PredictorLibrary",
    "ProofError",
    "export_c",
    "export_p4",
    "lower",
    "with_votes",
]
