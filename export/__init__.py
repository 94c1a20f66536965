"""What leaves Foretail: passes over the ensemble IR, proofs of equivalence, and code for simulators and switches."""

from foretail.export.build import PredictorLibrary
from foretail.export.c import ExportResult, export_c
from foretail.export.equivalence import Certificate, Lowered, ProofError
from foretail.export.p4 import export_p4
from foretail.export.passes import lower
from foretail.export.votes import with_votes

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
