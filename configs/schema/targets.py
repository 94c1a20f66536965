"""Targets of an export."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from omegaconf import MISSING

from foretail.core.errors import ForetailError
from foretail.core.settings import part, positive_share, setting
from foretail.sim_bridge.policies import FIRST_EXPONENT, LAST_EXPONENT

EXPORT_TARGETS = ("c", "p4", "onnx", "sonic")
"""Foretail's own."""


@dataclass
class ModelInput:
    """One input of a model that another framework trained, in the order of its columns."""

    name: str = setting(MISSING, "Name of the feature: a letter, then letters, digits and underscores.")
    bits: int = setting(MISSING, "Bits of the input, which is an integer in [0, 2^bits).", at_least=1, at_most=32)
    params: str = setting("", "Constants of the feature's arithmetic, as in cell_bytes=256,average_shift=15.")
    column: str | None = setting(None, "Name of the column in training, where it is another one.")


@dataclass
class ModelLimits:
    """Limits of the process that reads another framework's model file (docs/reference/ensemble.md)."""

    cpu_seconds: int = setting(120, "Computing time.", at_least=1, at_most=10**6)
    memory_bytes: int = setting(
        8 * 2**30, "Memory, without that of the libraries that read the file.", at_least=2**24, at_most=2**50
    )
    wall_seconds: int = setting(
        3600, "Time after which a reader that waits without computing is stopped.", at_least=10, at_most=10**6
    )


@dataclass
class CTarget:
    """``target=c``: a header, a library for the simulators and a self-test."""

    shape: str = setting(
        "auto",
        "Code of a single prediction; auto chooses by measurement, or by the visits of training rows.",
        one_of=("auto", "branches", "bitvector", "hot_branches", "hot_bitvector"),
    )
    batch: str = setting(
        "auto",
        "Code of a batch; auto chooses by measurement, or by size and the visits of training rows.",
        one_of=("auto", "rows", "lanes", "hot_lanes"),
    )
    tune: bool = setting(False, "Measure every form on the rows of `dataset` and take the fastest.")
    input_bits: Any = setting(
        None,
        "Bits of a network's features as {NAME: BITS}, fewer than they could have; larger values count as the largest.",
    )

    def check(self, where: str) -> None:
        """Raise ForetailError unless bits are given by name."""
        given = self.input_bits
        if given is None:
            return
        if not isinstance(given, dict) or not all(type(bits) is int for bits in given.values()):
            raise ForetailError(
                f"{where}.input_bits = {given} gives no feature its bits: write {where}.input_bits={{NAME: BITS}}"
            )


@dataclass
class P4Banks:
    """A program with two banks, into which ``foretail deploy`` swaps models (docs/guide/export.md)."""

    trees: int | None = setting(
        None, "Number of trees that a bank has room for; null means no banks.", at_least=1, at_most=64
    )
    words: int = setting(1, "Code words of 32 bits of each feature, with a bit for every cut.", at_least=1, at_most=16)
    rows: int = setting(512, "Rows of every table.", at_least=2, at_most=65_536)


@dataclass
class P4Target:
    """``target=p4``: a P4_16 control for v1model or TNA, its entries and a resource report."""

    arch: str | None = setting(
        None,
        "Architecture: v1model for BMv2, tna for Tofino, whose profile is tofino; null follows the profile.",
        one_of=("v1model", "tna"),
    )

    encoding: str = setting(
        "auto",
        "Form of the feature tables; auto takes the cheapest.",
        one_of=("auto", "range", "ternary"),
    )
    decision: str = setting(
        "auto",
        "Form of the tree tables; auto takes the cheapest.",
        one_of=("auto", "leaf_rows", "product", "groups"),
    )
    max_rows: int | None = setting(
        None, "Largest number of rows of all tables; null means no limit.", at_least=1, at_most=10_000_000
    )
    entries: str = setting(
        "const",
        "Place of the table entries: in the program, or in files for the control plane.",
        one_of=("const", "runtime"),
    )
    profile: str | None = setting(
        None,
        "What the switch offers: v1model, tofino, tofino2, or a YAML file; null means v1model or tofino, by arch.",
    )
    bmv2: bool = setting(
        False, "Also compile with p4c and run 10,000 packets in BMv2, both on PATH (docs/guide/export.md)."
    )
    compile: bool = setting(
        False, "Also compile for the profile tofino or tofino2 with p4c-barefoot on PATH (docs/reports/tofino.md)."
    )
    control: str = setting("DropPredictor", "Name of the control; predictors of one program need different names.")
    banks: P4Banks = part(P4Banks, "Two banks of tables for models of a running switch; entries are then runtime.")


@dataclass
class SonicTarget:
    """``target=sonic``: buffer profiles of predicted alphas, and the rules that choose one."""

    pool: str = setting("egress_lossy_pool", "Buffer pool that the queues share.")
    size_bytes: int = setting(0, "Bytes of the pool that are reserved for each queue.", at_least=0, at_most=2**30)
    config: str | None = setting(
        None,
        "Configuration of a switch, config_db.json, to write whole with the profiles in its lossy queues; null "
        "writes the profiles alone.",
    )
    smallest_dynamic_th: int = setting(
        FIRST_EXPONENT,
        "Smallest dynamic_th, the log2 of alpha, that the platform takes.",
        at_least=FIRST_EXPONENT,
        at_most=LAST_EXPONENT,
    )
    largest_dynamic_th: int = setting(
        LAST_EXPONENT,
        "Largest dynamic_th that the platform takes; many take up to 3.",
        at_least=FIRST_EXPONENT,
        at_most=LAST_EXPONENT,
    )
    nearest: bool = setting(False, "Write the nearest dynamic_th that the platform takes instead of refusing a model.")

    def check(self, where: str) -> None:
        """Raise ForetailError on a name that no pool has, and on a platform that takes no alpha."""
        if self.smallest_dynamic_th > self.largest_dynamic_th:
            raise ForetailError(
                f"{where}.smallest_dynamic_th = {self.smallest_dynamic_th} is above {where}.largest_dynamic_th = "
                f"{self.largest_dynamic_th}: exchange them"
            )
        if not re.fullmatch(r"[A-Za-z0-9_.-]{1,255}", self.pool):
            raise ForetailError(f"{where}.pool = {self.pool!r} names no pool: use letters, digits, _, . and -")


@dataclass
class DemandTarget:
    """A demand predictor in integers."""

    max_error_uplinks: float = positive_share(
        1e-3, "Largest distance of an entry from that of the predictor; it decides the number of fraction bits."
    )
    largest_uplinks: float = setting(
        64.0, "Largest value for which linear predictors keep that error; larger values count as this one.", above=0
    )


@dataclass
class CircuitEntries:
    """``outputs=[p4]``: the table entries of each rack."""

    first_port: int = setting(0, "Egress port of uplink 0.", at_least=0, at_most=510)
