"""What a controller does once per interval: from counters to a queue's profile, by nothing but the exported files.

``NAME.json`` is a part of SONiC's configuration with one ``BUFFER_PROFILE`` per alpha, whose ``dynamic_th`` is
log2(alpha). ``NAME_rules.json`` has rules over counters, of which exactly one holds, each with its profile, and the
command by which a P4 switch gets the same alpha. ``docs/results/slow-settings.md`` shows both.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from foretail.core.json_text import parse_json
from foretail.export.proof.certificate import ProofError
from foretail.features.counters import COUNTER_BITS, COUNTERS
from foretail.sim_bridge.policies import FIRST_EXPONENT, LAST_EXPONENT

SHIFT = -FIRST_EXPONENT
"""The P4 register holds log2(alpha) plus this, so that it is never below 0."""

LARGEST = (1 << COUNTER_BITS) - 1
_COMMAND = re.compile(r"register_write alpha_shift \{queue\} (\d+)")
_P4_SHIFT = re.compile(r"\(free_bytes << shift\) >> (\d+)")


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
        """Whether the rule holds; `counters` by name, each from 0 to 255."""
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

    def buffer_queue(self, port: str, queue: int, counters: Mapping[str, int]) -> dict[str, Any]:
        """The part of SONiC's configuration that gives a queue its profile, such as of ``Ethernet0`` and 3."""
        return {"BUFFER_QUEUE": {f"{port}|{queue}": {"profile": self.profile(counters).name}}}

    def register_write(self, index: int, counters: Mapping[str, int]) -> str:
        """The command that gives the queue at `index` of the P4 register its alpha."""
        return self.profile(counters).command.format(queue=index)


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
