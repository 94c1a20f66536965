"""The cost of a drop predictor in a switch: size of its trees, tables in P4, and the state behind its features."""

from __future__ import annotations

from dataclasses import dataclass

from foretail.export.p4.planning import plan
from foretail.export.p4.profile import Profile
from foretail.export.passes import lower
from foretail.features.catalog import selection_cost
from foretail.models.ensemble.ensemble import Ensemble


@dataclass(frozen=True)
class SwitchCost:
    """Costs of a predictor as it would be exported, for any tau."""

    leaves: int  #: of all trees together, after the passes of the compiler
    comparisons: int  #: per packet, at most: the depths of all trees together
    #: of all tables of the cheapest P4 encoding on the profile, before ranges are expanded to prefixes; default actions
    #: are no entries. Planned, not rendered and proven: ``foretail export`` does that
    table_entries: int
    tcam_bits: int  #: of the same tables
    feature_bits: int  #: registers that the features keep in a switch, in bits, shared ones once


def switch_cost(model: Ensemble, ports: int, profile: Profile) -> SwitchCost:
    """Return what `model` costs a switch of `ports` queues.

    ForetailError on an input that is not a feature of a switch, or a model without an encoding.
    """
    lowered = lower(model).ensemble
    chosen = plan(lowered, profile).chosen
    return SwitchCost(
        leaves=sum(len(tree.leaves) for tree in lowered.trees),
        comparisons=sum(tree.depth for tree in lowered.trees),
        table_entries=chosen.total("rows"),
        tcam_bits=chosen.total("tcam_bits"),
        feature_bits=selection_cost([item.name for item in model.features], ports).register_bits,
    )
