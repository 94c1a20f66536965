"""A switch for Tofino around a predictor of what its ingress can know: it computes the features (docs/p4-tofino.md)."""

from __future__ import annotations

import re
from collections.abc import Sequence

from foretail.export.templates import environment
from foretail.features.catalog import FEATURE_GROUPS, REPORTED_EVERY, VALUE_BITS, feature
from foretail.models.ensemble.ensemble import FeatureInput

_BYTES = {"queue_tracked": "length", "occupancy_tracked": "occupancy", "gap_tracked": "gap"}
"""Variables of the switch, 32 bits of bytes, that features in cells are read from."""

_BITS = 32


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
    template = environment("foretail.export.p4.text").get_template("predictor_switch_tna.p4.j2")
    return template.render(
        inputs=[_value(given) for given in features],
        name=name,
        control=control,
        width=score_bits,
        words=words,
        every=REPORTED_EVERY,
    )


def _value(given: FeatureInput) -> str:
    if given.name not in _BYTES:
        return f"(bit<{VALUE_BITS}>) hdr.tag.{given.name}"
    shift = _cell_bytes(given).bit_length() - 1
    top = min(shift + VALUE_BITS, _BITS) - 1
    value = f"{_BYTES[given.name]}[{top}:{shift}]"
    return value if top - shift + 1 == VALUE_BITS else f"(bit<{VALUE_BITS}>) {value}"


def _cell_bytes(given: FeatureInput) -> int:
    found = re.search(r"\bcell_bytes=(\d{1,9})\b", given.params)
    return int(found[1]) if found else 1
