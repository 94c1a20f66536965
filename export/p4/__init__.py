"""The P4 target: match-action tables for v1model, planned by cost, read back from their text and proven."""

from foretail.export.p4.target import P4Export, export_p4

__all__ = ["P4Export", "export_p4"]
