"""The SONiC target: a buffer profile per alpha, rules from counters to profiles, and the same for a P4 register.

``NAME.json`` is a part of SONiC's configuration with one ``BUFFER_PROFILE`` per alpha, whose ``dynamic_th`` is
log2(alpha). ``NAME_rules.json`` has rules over counters, of which exactly one holds, each with its profile, and the
command by which a P4 switch gets the same alpha. A controller follows the rules once per interval; see
``docs/reports/sharing.md``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from foretail.core.json_text import parse_json
from foretail.export.folder import encoded
from foretail.export.proof import Lowered, ProofError, ReadBack
from foretail.export.target import Files, Loaded, Rendered
from foretail.features.catalog import COUNTER_BITS, COUNTERS
from foretail.models.drop.thresholds.alpha_tree import require_alpha_tree
from foretail.models.ensemble.boxes import Boxes, leaf_boxes
from foretail.models.ensemble.ensemble import Ensemble
from foretail.sim_bridge.imports.sonic.config import config_text, parse_config
from foretail.sim_bridge.imports.sonic.tables import Profile as BufferProfile
from foretail.sim_bridge.imports.sonic.tables import SonicBuffers
from foretail.sim_bridge.imports.sonic.thresholds import with_lossy_profiles
from foretail.sim_bridge.policies import FIRST_EXPONENT, LAST_EXPONENT

IntArray = npt.NDArray[np.int64]

SHIFT = -FIRST_EXPONENT
"""The P4 register holds log2(alpha) plus this, so that it is never below 0."""

LARGEST = (1 << COUNTER_BITS) - 1
_COMMAND = re.compile(r"register_write alpha_shift \{queue\} (\d+)")
_P4_SHIFT = re.compile(r"\(free_bytes << shift\) >> (\d+)")

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
class Profile:
    """A setting of a queue."""

    name: str  #: of the buffer profile
    exponent: int  #: log2(alpha), the profile's ``dynamic_th``
    command: str  #: for simple_switch_CLI, with ``{queue}`` for the index in the register


@dataclass(frozen=True)
class Rule:
    """One rule: a profile where every counter that it names lies between two values, both included."""

    bounds: Mapping[str, tuple[int, int]]
    profile: Profile

    def holds(self, counters: Mapping[str, int]) -> bool:
        """Return whether the rule holds; `counters` by name, each from 0 to 255."""
        return all(low <= counters[name] <= high for name, (low, high) in self.bounds.items())


@dataclass(frozen=True)
class ExportedRules:
    """The rules of exported files."""

    interval_ns: int  #: between two decisions, and that the counters are taken over
    counters: tuple[str, ...]  #: that the rules read
    rules: tuple[Rule, ...]

    @classmethod
    def read(cls, config: bytes, rules: bytes, p4: bytes) -> ExportedRules:
        """Read the three files; ProofError when they hold anything else, or say different alphas of a profile."""
        shift = _P4_SHIFT.search(p4.decode("ascii"))
        if shift is None:
            raise _refusal("the P4 file shifts nothing")
        try:
            profiles = _profiles(parse_json(config), parse_json(rules)["profiles"], int(shift[1]))
            document = parse_json(rules)
            names = tuple(document["counters"])
            read = tuple(_rule(one, names, profiles) for one in document["rules"])
            return cls(_whole(document["interval_ns"]), names, read)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise _refusal(f"it does not hold what export writes ({error})") from None

    def profile(self, counters: Mapping[str, int]) -> Profile:
        """The profile of a queue; ProofError unless exactly one rule holds.

        `counters` by name, each from 0 to 255.
        """
        profiles = [rule.profile for rule in self.rules if rule.holds(counters)]
        if len(profiles) != 1:
            raise _refusal(f"{len(profiles)} rules hold at {dict(counters)}")
        return profiles[0]


def _profiles(config: Mapping[str, Any], commands: Mapping[str, Any], shift: int) -> dict[str, Profile]:
    if set(config) != {"BUFFER_PROFILE"} or set(config["BUFFER_PROFILE"]) != set(commands):
        raise ValueError("the profiles of both files differ")
    profiles = {}
    for name, fields in config["BUFFER_PROFILE"].items():
        if set(fields) != {"pool", "size", "dynamic_th"} or not re.fullmatch(r"-?\d+", fields["dynamic_th"]):
            raise ValueError(f"profile {name} has other fields than pool, size and dynamic_th")
        written = _COMMAND.fullmatch(commands[name])
        if written is None:
            raise ValueError(f"profile {name} has the command {commands[name]!r}")
        exponent = int(fields["dynamic_th"])
        if int(written[1]) - shift != exponent:
            raise ValueError(f"profile {name} has dynamic_th {exponent}, and its register another alpha")
        if not FIRST_EXPONENT <= exponent <= LAST_EXPONENT:
            raise ValueError(f"profile {name} has dynamic_th {exponent}, which no switch takes")
        profiles[name] = Profile(name, exponent, commands[name])
    return profiles


def _rule(document: Mapping[str, Any], names: tuple[str, ...], profiles: Mapping[str, Profile]) -> Rule:
    bounds = {}
    for name, (low, high) in document["if"].items():
        if name not in names or name not in {counter.name for counter in COUNTERS}:
            raise ValueError(f"a rule reads {name}")
        if not 0 <= _whole(low) <= _whole(high) <= LARGEST:
            raise ValueError(f"a rule has the bounds {low} and {high}")
        bounds[name] = (low, high)
    if set(document) != {"if", "profile"}:
        raise ValueError("a rule has other fields than if and profile")
    return Rule(bounds, profiles[document["profile"]])


def _whole(value: object) -> int:
    if type(value) is not int:
        raise ValueError(f"{value!r} is not a whole number")
    return value


def _refusal(why: str) -> ProofError:
    return ProofError(f"the exported SONiC rules cannot be used, {why}: export the model again")


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
        added = {
            name: BufferProfile(self.pool, self.size_bytes, profile.exponent) for name, profile in profiles.items()
        }
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
