"""Target profiles: what a switch offers to tables, as YAML files that users can write themselves.

A profile names its architecture, for which the P4 text is written: what its pipeline can match, add and compare. The
software switch BMv2 runs ``v1model``; Tofino's chips run ``tna``, the Tofino Native Architecture (p4lang/p4c,
``backends/tofino``).
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from importlib import resources
from pathlib import Path

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from foretail.core.errors import ForetailError
from foretail.core.settings import limits_of, require_within
from foretail.export.p4.rows import KINDS, Kind
from foretail.features.catalog import VALUE_BITS

INPUT_BITS = VALUE_BITS
"""Width of a feature as the control takes it."""


@dataclass(frozen=True)
class Architecture:
    """The forms that a text may use."""

    name: str  #: of a file of P4's core library, without ``.p4``
    kinds: tuple[Kind, ...]  #: of the keys of feature tables
    #: whether inputs are cut off above the largest cut before they are matched; else tables match all 24 bits
    saturates: bool
    #: whether one assignment may hold several operations, assignments may follow each other, a key may be a
    #: concatenation, integers are compared, and words of any width are set in one step. Else every operation is the
    #: action of a table, because a compiler puts what follows each other into one step; and a word fills a container,
    #: because two tables of one stage cannot set parts of one.
    expressions: bool
    integer_bits: tuple[int, ...]  #: widths that can be added, increasing
    #: how many votes are variables of their own; the tables of further ones add to these, one stage after the other
    accumulators: int | None

    def width(self, bits: int) -> int:
        """Return the narrowest integer of at least `bits` bits, or where there is none the next multiple of 8."""
        return next((width for width in self.integer_bits if width >= bits), -(-bits // 8) * 8)

    def word_width(self, bits: int) -> int:
        """Return the width of a code word of `bits` bits."""
        return bits if self.expressions else self.width(bits)


V1MODEL = Architecture("v1model", KINDS, True, True, tuple(range(8, 65, 8)), None)

TNA = Architecture(
    "tna",
    ("ternary",),  # a stage compares at most 20 bits with a range
    False,  # a comparison of 24 bits takes a stage, the 24 bits of a key none: a row of TCAM has 44
    False,
    (8, 16, 32),  # of a container of the packet header vector
    8,  # of 16 containers that one adder reaches, also those of their sums
)

ARCHITECTURES = {architecture.name: architecture for architecture in (V1MODEL, TNA)}


@dataclass(frozen=True)
class Profile:
    """Resources of a target; None means without limit."""

    name: str  #: for reports
    note: str  #: for reports: where the numbers come from
    arch: str  #: architecture that the text is written for: ``v1model`` or ``tna``
    stages: int | None  #: match stages in a row
    tables_per_stage: int | None  #: tables that one stage can hold
    tcam_tables_per_stage: int | None  #: those of them that can have their keys in TCAM
    tcam_blocks: int | None  #: memory blocks of one stage
    tcam_block_rows: int  #: rows of a block; a table takes whole blocks
    tcam_block_bits: int  #: bits of a row of a block
    sram_blocks: int | None  #: as of the TCAM
    sram_block_rows: int  #: as of the TCAM
    sram_block_bits: int  #: as of the TCAM
    #: whether the TCAM matches ranges; a range row then takes twice its key bits (both bounds), else its prefixes
    range: bool
    largest_key_bits: int  #: widest key of a table
    largest_integer_bits: int  #: widest integer that can be added and compared, at most 64
    code_words: int | None  #: code words of all features that find a place beside masks and sums
    word_bits: int  #: code words and masks are cut into fields of so many bits, at most 64
    whole_blocks: bool  #: whether a bit costs because its block does, so that all bits of a block count
    row_cost: float  #: weight of a row in the cost model that chooses between encodings, not negative
    tcam_bit_cost: float  #: the same of a bit of TCAM
    sram_bit_cost: float  #: the same of a bit of SRAM
    stage_cost: float  #: the same of a stage

    @property
    def architecture(self) -> Architecture:
        """The architecture `arch`: what it can match, add and compare."""
        return ARCHITECTURES[self.arch]

    def __post_init__(self) -> None:
        if self.arch not in ARCHITECTURES:
            raise ForetailError(f"there is no P4 architecture {self.arch!r}: choose {' or '.join(ARCHITECTURES)}")
        for field, limits in limits_of(Profile).items():
            bounds = {"at_least": 0 if limits["kind"] is float else 1}
            if field in ("largest_integer_bits", "word_bits"):
                bounds = {"at_least": 8, "at_most": 64}
            require_within(f"{field} of the P4 profile {self.name}", getattr(self, field), {**limits, **bounds})


def load_profile(profile: str) -> Profile:
    """Return a profile that Foretail brings (files of ``profiles/``), or that of a YAML file, given by its path.

    ForetailError when there is none of that name, or the file does not hold exactly the fields of :class:`Profile`.
    """
    folder = resources.files(__package__) / "profiles"
    known = sorted(item.name.removesuffix(".yaml") for item in folder.iterdir() if item.name.endswith(".yaml"))
    try:
        text = (folder / f"{profile}.yaml" if profile in known else Path(profile)).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise ForetailError(
            f"there is no P4 profile {profile!r}: choose {' or '.join(known)}, or pass the path of a YAML file"
        ) from None
    try:
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text)):
            raise ValueError("aliases, of which a few lines can stand for any length")
        document = OmegaConf.to_container(OmegaConf.create(text))
        if not isinstance(document, dict) or set(document) != {field.name for field in fields(Profile)}:
            wanted = [field.name for field in fields(Profile)]
            other = sorted(set(map(str, document)) ^ {*wanted}) if isinstance(document, dict) else ["all"]
            raise ValueError(f"its fields are not {', '.join(wanted)}, but differ by {', '.join(other)[:80]}")
        merged = OmegaConf.merge(OmegaConf.structured(Profile), document)
    except (
        OmegaConfBaseException,
        ValueError,
        AssertionError,
        yaml.YAMLError,
    ) as error:  # a number alone: an assertion
        reason = " ".join(str(error).split("\n")[0].split())
        raise ForetailError(f"the P4 profile {profile!r} is not valid ({reason}): start from v1model.yaml") from None
    values = OmegaConf.to_container(merged)
    assert isinstance(values, dict)
    return Profile(**{str(name): value for name, value in values.items()})
