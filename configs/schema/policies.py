"""Buffer policies and their parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from omegaconf import MISSING

from foretail.configs.schema.network.queues import Queues, require_quanta
from foretail.configs.schema.scenario import Rules, Scenario
from foretail.core.errors import ForetailError
from foretail.core.settings import require_distinct, setting
from foretail.sim_bridge import policies, policy_settings

POLICIES = policies.POLICIES
BUFFER_POLICIES = tuple(POLICIES)
OF_ARRIVALS, TAKE_RULES = policies.OF_ARRIVALS, policies.TAKE_RULES
ASKING = policies.ASKING
FIRST_EXPONENT, LAST_EXPONENT = policies.FIRST_EXPONENT, policies.LAST_EXPONENT
DT_PREDICTED = "dt_predicted"
"""The option of the group ``policy`` whose alphas a model predicts."""
RULE_NUMBERS = {
    "message_left": (-1, 254),
    "fill": (0, 255),
    "pressure": (0, 255),
    "first_rtt_more": (0, 255),
    "last_pressure": (0, 255),
    "far": (0, 255),
    "far_less": (0, 255),
}
"""Fields of a sharing rule, each with its least and largest value."""
RULE_DEFAULTS = {"last_pressure": 255, "far": 255, "far_less": 0}
"""Defaults of a sharing rule: no limit for last packets, and none is far from the end of its message."""
is_guest, policy_name = policies.is_guest, policies.policy_name
name_with_settings, settings_in_name = policy_settings.name_with_settings, policy_settings.settings_in_name
NUMBERS, numbers_of = policy_settings.NUMBERS, policy_settings.numbers_of
takes_alpha = policy_settings.takes_alpha


@dataclass
class _Named:
    name: str = setting(MISSING, "Name of the policy, or HEADER.hpp:TYPE for one in a C++ header of your own.")


@dataclass
class Policy(policy_settings.SwitchParameters, _Named):
    """One buffer policy with its parameters; parameters of other policies are ignored by it.

    Examples
    --------
    >>> Policy("dt", alpha=2.0).alpha
    2.0
    """

    @property
    def asks_exported_model(self) -> bool:
        """True if the policy needs the stage's exported model, having no library of its own."""
        return self._may_have_predictor and self.predictor == "library" and self.library is None

    def ask(self, library: Path) -> Self:
        """The policy with the predictor that it asks, a compiled library."""
        return replace(self, library=str(library))

    @property
    def _may_have_predictor(self) -> bool:
        return policies.may_ask(self.name) or policy_settings.takes_alpha(self.name)

    def require_knows(self, where: str, queues: Queues, rules: Rules) -> None:
        """Raise ForetailError unless the policy, as it is set, knows the queues of a port and the oracle."""
        if self.incast_alpha is not None and queues.incast in (queues.background, queues.control):
            raise ForetailError(
                f"{where}.incast_alpha is the alpha of a queue of incast alone, and incast shares queue "
                f"{queues.incast}: give it another in scenario.queues.incast, or set incast_alpha to null"
            )
        if queues.count > 1 and self.name in POLICIES and self.name not in policies.KNOW_PRIORITIES:
            raise ForetailError(f"{where} = {self.name} knows one queue per port: set scenario.queues.count=1")
        for name in policy_settings.OF_QUEUES:
            values = getattr(self, name)
            if self.name in policies.SEE_INGRESS and values and len(values) != queues.count:
                raise ForetailError(
                    f"{where}.{name} has {len(values)} values for the {queues.count} queues of a port: give one for "
                    "each, or []"
                )

    def check(self, where: str) -> None:
        """Raise ForetailError on parameters that the policy does not know."""
        require_known_policy(f"{where}.name", self.name)
        if self.order == "any_queue" and self.victim not in policies.BY_TAGS:
            raise ForetailError(
                f"{where}.order = any_queue compares what senders say of packets: set {where}.victim to "
                f"{' or '.join(policies.BY_TAGS)}"
            )
        asks = self._may_have_predictor and self.predictor == "library"
        if not asks and (self.library is not None or self.predictor == "library"):
            raise ForetailError(f"{where} names a predictor, but only credence with predictor=library asks one")
        for setting_name in ("library", "message_end"):
            path = getattr(self, setting_name)
            if path is not None and not Path(path).is_file():
                raise ForetailError(f"{where}.{setting_name}: there is no file {path}")
        if self.message_end is not None and self.name in POLICIES and self.name not in policies.READ_TAGS:
            raise ForetailError(
                f"{where}.message_end is for a policy that spares the last packets of a message, which {self.name} is "
                f"not: choose {', '.join(policies.READ_TAGS)}, or set it to null"
            )


def require_rule(where: str, rule: Mapping[str, int]) -> None:
    """Raise ForetailError unless these are the numbers of a sharing rule, all of them and nothing else."""
    for name in dict.fromkeys((*RULE_NUMBERS, *rule)):
        low, high = RULE_NUMBERS.get(name, (1, 0))
        if not low <= rule.get(name, RULE_DEFAULTS.get(name, low - 1)) <= high:
            numbers = ", ".join(f"{one} from {least} to {most}" for one, (least, most) in RULE_NUMBERS.items())
            raise ForetailError(f"{where} is not a sharing rule for its {name}: give {numbers}, and nothing else")


def require_known_policy(where: str, name: str) -> None:
    """Raise ForetailError unless a policy is one of Foretail's own, or a header names it."""
    if policies.is_guest(name):
        header, _ = policies.header_and_type(name)
        if not header.is_file():
            raise ForetailError(f"{where}: there is no file {header}")
        if policies.policy_name(name) in POLICIES:
            raise ForetailError(f"{where} = {name} has the name of one of Foretail's own policies: rename the type")
    elif name not in POLICIES:
        raise ForetailError(
            f"{where} = {name} is unknown: choose from {', '.join(BUFFER_POLICIES)}, or name a header as in "
            f"my_rule.hpp:MyRule"
        )


def require_distinct_policies(where: str, names: Sequence[str]) -> None:
    """Raise ForetailError unless policies can decide arrivals at ports and have different names in tables."""
    for name in names:
        require_known_policy(where, name)
        if name in policies.SEE_INGRESS:
            raise ForetailError(
                f"{where} names {name}, which has to know where packets came in, and arrivals do not say: simulate a "
                "network, or choose another"
            )
    require_distinct(where, [policies.policy_name(name) for name in names], "name every policy once")


def require_tunable(where: str, name: str, values: Mapping[str, Sequence[float]]) -> None:
    """Raise ForetailError unless a policy asks nobody, and has parameters of these names with values to try.

    Without values a name may be any option of the group ``policy``; composing refuses those that there are not.
    """
    if not values and name.rpartition("_")[0] in POLICIES:
        name = name.rpartition("_")[0]
    require_known_policy(where, name)
    if name in ASKING:
        raise ForetailError(f"{where} names {name}, which asks a model: give model=..., and it is compared too")
    has = [] if is_guest(name) else numbers_of(name)
    for parameter, tried in values.items():
        if parameter not in has:
            raise ForetailError(
                f"{where}.{name} has {parameter}, which it does not heed: {name} has {', '.join(has) or 'none'}"
            )
        if not tried:
            raise ForetailError(f"{where}.{name}.{parameter} is empty: give at least one value")
        if isinstance(NUMBERS[parameter].default, int) and not all(float(value).is_integer() for value in tried):
            raise ForetailError(f"{where}.{name}.{parameter} = {list(tried)} has a fraction: give whole numbers")
        require_distinct(f"{where}.{name}.{parameter}", tried, "every value is a setting of its own")


def require_policies(where: str, policies: Mapping[str, Policy]) -> None:
    """Raise ForetailError unless there are policies."""
    if not policies:
        raise ForetailError(f"{where} is empty: choose at least one policy, such as {where}=lqd")


def require_baselines(baselines: Sequence[str], policies: Mapping[str, Policy]) -> None:
    """Raise ForetailError on a baseline that does not run."""
    for name in baselines:
        if name not in policies:
            raise ForetailError(
                f"baselines names {name!r}, which is not among the policies ({', '.join(policies)}): add it to "
                "policy=[...] or take it out of baselines"
            )


def require_known(where: str, policies: Mapping[str, Policy], scenario: Scenario) -> None:
    """Raise ForetailError unless all policies know the queues of a port and the oracle of a scenario."""
    for name, policy in policies.items():
        policy.require_knows(f"{where}.{name}", scenario.queues, scenario.rules)


def require_one_policy(where: str, policies: Mapping[str, Policy]) -> None:
    """Raise ForetailError unless there is one policy, which moves the packets of a trace."""
    require_policies(where, policies)
    if len(policies) != 1:
        raise ForetailError(f"{where} names {', '.join(policies)}: a trace comes from exactly one policy")
    for name, policy in policies.items():
        if policy.asks_exported_model:
            raise ForetailError(f"{where}.{name} asks a predictor and there is none: give {where}.{name}.library=PATH")


@dataclass
class PolicyParameters(policy_settings.SlotParameters):
    """Parameters of the policies where arrivals are known beforehand; every policy takes what it knows."""

    def check(self, where: str) -> None:
        """Raise ForetailError on numbers that do not fit the queues of a port."""
        if len(self.alpha) not in (1, self.count):
            raise ForetailError(
                f"{where}.alpha has {len(self.alpha)} values for {self.count} queues of a port: give one for each, or "
                "one for all"
            )
        require_quanta(f"{where}.quanta", self.quanta, self.scheduler, self.count)
