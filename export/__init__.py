"""What leaves Foretail: passes over the ensemble IR, proofs of equivalence, and code for simulators and switches."""

from foretail.export.build import PredictorLibrary
from foretail.export.c import ExportResult, export_c
from foretail.export.equivalence import Certificate, ProofError
from foretail.export.votes import with_votes

__all__ = ["Certificate", "ExportResult", "PredictorLibrary", "ProofError", "export_c", "with_votes"]
