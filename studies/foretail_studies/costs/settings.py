"""Settings of experiments on what drops cost."""

from __future__ import annotations

from dataclasses import dataclass

from omegaconf import MISSING

from foretail.configs.schema.experiment import SimulatedJobSettings
from foretail.configs.schema.families import Families
from foretail.configs.schema.fields import setting
from foretail.configs.schema.policies import POLICIES
from foretail.core.errors import ForetailError
from foretail.features.catalog import FEATURES


@dataclass
class CostSettings(SimulatedJobSettings, Families):
    """What decisions cost, measured by branches of runs, and trees that learn it, for the policy ``learned``.

    At sampled arrivals a run divides: a branch accepts, another drops. Their costs J differ by what the drop costs,
    and by chaos. Runs are those of conditions of the training families.
    """

    model: str | None = setting(None, "Model, as in export, for policies without a library, such as learned.")
    conditions: list[str] = setting(
        [],
        "Training conditions as FAMILY CONDITION, such as loss_based load_60; an empty list means the "
        "first condition of each family.",
    )
    policies: list[str] = setting(
        MISSING,
        "Policies whose decisions are flipped, such as cs or dt_alpha_2, or learned, which asks model; none "
        "that pushes out.",
    )
    seeds: list[int] = setting(MISSING, "Traffic seeds of the labelled runs.", at_least=1, at_most=2**30)
    traffic_ns: int = setting(
        MISSING, "Traffic time of labelled runs, shortened because every branch runs to their end.", at_least=1
    )
    flips: int = setting(
        MISSING, "Number of arrivals of a run at which one decision is flipped.", at_least=1, at_most=100_000
    )
    held_flips: int = setting(
        MISSING,
        "Number of arrivals from which on decisions are flipped for one base round trip, for that port and flow class.",
        at_least=0,
        at_most=100_000,
    )
    repeats: int = setting(
        2, "Number of runs with each decision; a single one does not show chaos.", at_least=1, at_most=100
    )
    repeat_ns: int = setting(
        100,
        "Length by which the link of the port grows from one repeat to the next.",
        at_least=1,
        at_most=10**6,
    )
    flips_per_point: int = setting(
        MISSING, "Number of flips that one process simulates, which is what a killed command repeats.", at_least=1
    )
    columns: list[str] = setting(MISSING, "Columns of a trace that the trees read.")
    trees: int = setting(4, "Number of trees of the regression.", at_least=1, at_most=64)
    depth: int = setting(4, "Depth of each tree.", at_least=1, at_most=8)
    learning_rate: float = setting(0.5, "Share of each tree that counts.", above=0, at_most=1)
    fewest_flips: int = setting(20, "Fewest flips in a leaf.", at_least=1)
    clip_percent: float = setting(
        5.0,
        "Percentile, at either end, at which the gains of a run are clipped before the trees learn them.",
        at_least=0,
        at_most=49,
    )
    drop_shares: list[float] = setting(
        MISSING,
        "Shares of arrivals that the trees may drop, beside all whose drop they predict to be cheaper.",
        above=0,
        at_most=1,
    )
    validation_seeds: list[int] = setting(
        MISSING, "Traffic seeds on which J chooses among these shares, none of seeds.", at_least=1, at_most=2**30
    )
    seed: int = setting(1, "Seed of the drawn arrivals and of the trees.", at_least=0, at_most=2**31 - 1)

    def check(self, where: str) -> None:
        """Raise ForetailError on ns-3, on policies that decide no arrival, and on seeds that have two roles."""
        super().check(where)
        if self.network.name == "ns3":
            raise ForetailError("network=ns3 has no branches, which measure what drops cost: use network=native")
        for name in self.policies:
            policy = POLICIES.get(name.split("_")[0])
            if policy is not None and policy.pushes_out:
                raise ForetailError(f"policies names {name}, which pushes out: name one that decides arrivals")
        known = {one.name: one for one in FEATURES}
        for name in self.columns:
            if name not in known:
                raise ForetailError(f"columns names {name}, which no switch has: choose from {', '.join(known)}")
            if known[name].averaged:
                raise ForetailError(
                    f"columns names {name}, an average over a time that networks differ in: name others"
                )
        for seed in self.validation_seeds:
            if seed in self.seeds:
                raise ForetailError(f"validation_seeds holds {seed}, a labelled run: simulate other seeds")
