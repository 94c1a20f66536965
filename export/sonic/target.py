"""The SONiC target: a buffer profile per alpha, rules from counters to profiles, and the same for a P4 register."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from foretail.export.folder import encoded
from foretail.export.lowered import Lowered
from foretail.export.proof.certificate import ProofError
from foretail.export.proof.prove import ReadBack
from foretail.export.sonic.rules import LARGEST, SHIFT, ExportedRules
from foretail.export.target import Files, Loaded, Rendered
from foretail.models.drop.thresholds.alpha_tree import require_alpha_tree
from foretail.models.ensemble.boxes import Boxes, leaf_boxes
from foretail.models.ensemble.ensemble import Ensemble
from foretail.sim_bridge.imports.sonic.config import config_text, parse_config
from foretail.sim_bridge.imports.sonic.tables import Profile, SonicBuffers
from foretail.sim_bridge.imports.sonic.thresholds import with_lossy_profiles

IntArray = npt.NDArray[np.int64]

_P4 = """\
/* SPDX-License-Identifier: MIT-0 */
/* Dynamic Thresholds whose alpha a controller sets: alpha_shift of a queue holds log2(alpha) + {shift}. */
control AlphaThreshold(in bit<32> queue, in bit<48> free_bytes, out bit<48> threshold_bytes)(bit<32> queues) {{
    register<bit<8>>(queues) alpha_shift;
    apply {{
        bit<8> shift;
        alpha_shift.read(shift, queue);
        threshold_bytes = (free_bytes << shift) >> {shift};
    }}
}}
"""


@dataclass(frozen=True)
class Sonic:
    """The SONiC target, for trees of alphas; :class:`ExportedRules` says what its files are."""

    pool: str = "egress_lossy_pool"  #: the buffer pool that the queues share
    size_bytes: int = 0  #: of the pool, reserved for each queue
    config: SonicBuffers | None = None  #: of a switch; NAME_config_db.json is then the same with the profiles
    name: ClassVar[str] = "sonic"

    def render(self, lowered: Lowered, prefix: str, max_cells: int) -> Rendered:
        """Write profiles, rules and register; ForetailError when the model is not a tree of alphas."""
        ensemble = lowered.ensemble
        interval_ns = require_alpha_tree(ensemble, "the model")
        boxes = leaf_boxes(ensemble.trees[0], ensemble.features)
        scores = sorted(set(boxes.votes.tolist()))
        profiles = {score: f"{prefix}_alpha_{_alpha(score // 2)}" for score in scores}
        config = {
            "BUFFER_PROFILE": {
                name: {"pool": self.pool, "size": str(self.size_bytes), "dynamic_th": str(score // 2)}
                for score, name in profiles.items()
            }
        }
        names = [item.name for item in ensemble.features]
        rules = {
            "interval_ns": interval_ns,
            "counters": names,
            "profiles": {
                name: f"register_write alpha_shift {{queue}} {score // 2 + SHIFT}" for score, name in profiles.items()
            },
            "rules": [
                {
                    "if": {
                        name: [int(low), int(high)]
                        for name, low, high in zip(names, lows, highs, strict=True)
                        if (low, high) != (0, LARGEST)
                    },
                    "profile": profiles[score],
                }
                for lows, highs, score in zip(boxes.low, boxes.high, boxes.votes.tolist(), strict=True)
            ],
        }
        texts = {
            f"{prefix}.json": _text(config),
            f"{prefix}_rules.json": _text(rules),
            f"{prefix}.p4": _P4.format(shift=SHIFT),
        }
        if self.config is not None:
            read = ExportedRules.read(*encoded(texts).values())
            texts[f"{prefix}_config_db.json"] = config_text(self._complete(self.config, read))
        return Rendered(encoded(texts))

    def _complete(self, config: SonicBuffers, read: ExportedRules) -> SonicBuffers:
        """The configuration whose lossy queues have the profile of an idle interval, until a controller changes it."""
        profiles = {rule.profile.name: rule.profile for rule in read.rules}
        added = {name: Profile(self.pool, self.size_bytes, profile.exponent) for name, profile in profiles.items()}
        return with_lossy_profiles(config, added, read.profile(dict.fromkeys(read.counters, 0)).name)

    def load(self, ensemble: Ensemble, files: Files) -> Loaded:
        """Read profiles, rules and register back, and follow them."""
        prefix = min(files, key=len).removesuffix(".p4")
        read = ExportedRules.read(files[f"{prefix}.json"], files[f"{prefix}_rules.json"], files[f"{prefix}.p4"])
        names = [item.name for item in ensemble.features]
        if list(read.counters) != names or read.interval_ns != require_alpha_tree(ensemble, "the model"):
            raise ProofError("the exported SONiC rules read other counters or another interval: report this as a bug")
        if self.config is not None:
            written = parse_config(files[f"{prefix}_config_db.json"])
            if written != self._complete(self.config, read):
                raise ProofError("the exported SONiC configuration has other profiles or queues: report this as a bug")
        bounds = [[rule.bounds.get(name, (0, LARGEST)) for name in names] for rule in read.rules]
        ends = np.array(bounds, np.int64).reshape(len(bounds), len(names), 2)
        scores = np.array([2 * rule.profile.exponent for rule in read.rules], np.int64)
        boundaries = {
            place: {int(end) for end in (*(ends[:, place, 0] - 1), *ends[:, place, 1]) if 0 <= end < LARGEST}
            for place in range(len(names))
        }

        def follow(x: IntArray) -> IntArray:
            rows = (dict(zip(names, row, strict=True)) for row in x.tolist())
            return np.array([2 * read.profile(row).exponent for row in rows], np.int64)

        part = Boxes(ends[:, :, 0], ends[:, :, 1], scores)
        return Loaded({"rules": ReadBack(boundaries, (part,))}, {"followed": follow}, "reader of the exported files")


def _alpha(exponent: int) -> str:
    """The alpha as a part of a name: 8, or 1_4."""
    return str(2**exponent) if exponent >= 0 else f"1_{2**-exponent}"


def _text(document: object) -> str:
    return json.dumps(document, indent=1) + "\n"
