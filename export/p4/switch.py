"""A switch for Tofino around a predictor: it computes what its ingress can know (docs/reports/tofino.md)."""

from __future__ import annotations

import re
from collections.abc import Sequence

from foretail.export.folder import environment
from foretail.features.catalog import FEATURE_GROUPS, REPORTED_EVERY, TRACKED_FEATURES, VALUE_BITS, feature
from foretail.models.ensemble.ensemble import FeatureInput

_BYTES = {"queue_tracked": "length", "occupancy_tracked": "occupancy", "gap_tracked": "gap"}
"""Variables of the switch, 32 bits of bytes, that features in cells are read from."""

_BITS = 32
_WHOLE_BYTES = (0, _BITS - VALUE_BITS)
"""Shifts that a slice can do; others take an operation."""


_BY_KIND = (
    ("count_let_in", "add_let_in", "subtract_let_in", "add_let_in"),
    ("count_sent", "look_up_sent", "look_up_sent", "replace_sent"),
    ("differences", "differ", "differ_back", "differ_report"),
    ("count_buffer", "take_free", "take_free", "take_free"),
    ("count_longest", "arrive_longest", "correct_longest", "correct_longest"),
)
"""Tables in order of time, and what they do with an arrival, one that comes back to be taken out, and a report."""

_NO_PRESSURE = 127
"""Added to both logarithms, so that their difference is at least 255 where nothing is free."""


def can_compute(features: Sequence[FeatureInput]) -> bool:
    """Tell whether the switch computes all of these features, by the constants that they were trained with."""
    return all(
        given.name in FEATURE_GROUPS["tofino"] and given.params == feature(given.name).params(_cell_bytes(given), 0)
        for given in features
    )


def render_switch(
    features: Sequence[FeatureInput], name: str, control: str, score_bits: int, words: Sequence[str]
) -> str:
    """Return a program around ``<name>.p4``; each of `words`, variables of its control, has a container of its own."""
    names = {given.name for given in features}
    template = environment("foretail.export.p4").get_template("predictor_switch_tna.p4.j2")
    return template.render(
        inputs=[_value(given) for given in features],
        name=name,
        control=control,
        width=score_bits,
        words=words,
        every=REPORTED_EVERY,
        by_kind=[tables for tables in _BY_KIND if tables[0] != "count_longest" or "gap_tracked" in names],
        shifts=[
            (_BYTES[given.name], _shift(given))
            for given in features
            if given.name in _BYTES and _shift(given) not in _WHOLE_BYTES
        ],
        reads={name: name in names for name in TRACKED_FEATURES},
        above=_octaves(128 + _NO_PRESSURE),
        below=_octaves(_NO_PRESSURE),
    )


def _octaves(added: int) -> list[tuple[int, int, int]]:
    """Return values, masks and eighths of octaves of all positive numbers, and what is added to these."""
    intervals = []
    for octave in range(_BITS - 1):
        low = max(octave - 3, 0)  # bits that do not count
        for value in range(1 << octave, 1 << octave + 1, 1 << low):
            intervals.append((value, (1 << _BITS) - (1 << low), added + 8 * octave + ((value << 3 >> octave) & 7)))
    return intervals


def _value(given: FeatureInput) -> str:
    if given.name not in _BYTES:
        return f"(bit<{VALUE_BITS}>) {'pressure' if given.name in TRACKED_FEATURES else f'hdr.tag.{given.name}'}"
    shift = _shift(given)
    if shift in _WHOLE_BYTES:
        return f"{_BYTES[given.name]}[{shift + VALUE_BITS - 1}:{shift}]"
    return f"cells_of_{_BYTES[given.name]}[{VALUE_BITS - 1}:0]"


def _shift(given: FeatureInput) -> int:
    return _cell_bytes(given).bit_length() - 1


def _cell_bytes(given: FeatureInput) -> int:
    cell_bytes = re.search(r"\bcell_bytes=(\d{1,9})\b", given.params)
    return int(cell_bytes[1]) if cell_bytes else 1
