"""
2. Your own model
=================

This program judges models that are not Foretail's: a function, an estimator of scikit-learn, and a class that all
commands can use.
"""

# %%
# **A function.** ``compare`` judges any function that predicts drops for a batch of arrivals. This one predicts a drop
# when the queue is longer than twice its fair share of the buffer. Three policies run on the same packets; you can name
# others. Dynamic Thresholds have alpha 16, the alpha that sends most on seeds 1 and 2.
import numpy as np

from foretail.api import FEATURES, Labelled, Predicted, SlotParameters, compare, workloads

PORTS, BUFFER, SLOTS = 20, 1000, 4000
PLACE = {feature.name: place for place, feature in enumerate(FEATURES)}
traffic = workloads.Incast(fan_in=5, background_load=0.6)


def twice_fair(batch: Labelled) -> Predicted:
    """Predict a drop for packets to long queues."""
    assert batch.features is not None
    return Predicted((batch.features[:, PLACE["queue"]] > 2 * BUFFER // PORTS).astype(np.uint8))


packets = traffic.batches(PORTS, BUFFER, SLOTS, seed=3)
tuned = SlotParameters(alpha=[16.0])
found = compare(packets, PORTS, BUFFER, ("lqd", "credence", "dt"), twice_fair, parameters=tuned, features=True)
print({policy: f"{sent:,}" for policy, sent in found.transmitted.items()})
dt = 100 * found.transmitted["dt"] / found.lqd
print(f"sent, % of LQD: {found.sent_percent_of_lqd:.2f} with the function, {dt:.2f} with Dynamic Thresholds")

# %%
# **An estimator.** ``from_sklearn`` converts a tree that you trained with scikit-learn to an ensemble, which has
# integer cuts and exact leaf values. Foretail can export an ensemble and prove the export. You name the feature of each
# column.
from sklearn.tree import DecisionTreeClassifier

from foretail.api import FeatureInput, from_estimator, labelled

NAMES = ("queue", "occupancy")
COLUMNS = [PLACE[name] for name in NAMES]
batches = list(labelled(traffic.batches(PORTS, BUFFER, SLOTS, seed=1), PORTS, BUFFER, features=True))
x = np.concatenate([batch.features[:, COLUMNS] for batch in batches if batch.features is not None])
y = np.concatenate([batch.lqd_drop for batch in batches]) != 0
tree = DecisionTreeClassifier(max_depth=3, random_state=1).fit(x, y)
ensemble = from_estimator(tree, [FeatureInput(name, "", 24) for name in NAMES])
print(f"{len(ensemble.trees)} tree of depth {ensemble.trees[0].depth}, {len(ensemble.trees[0].leaves)} leaves")


def by_tree(batch: Labelled) -> Predicted:
    """Predict the drops of the ensemble."""
    assert batch.features is not None
    return Predicted(ensemble.exceeds(batch.features[:, COLUMNS]).astype(np.uint8))


found = compare(traffic.batches(PORTS, BUFFER, SLOTS, seed=3), PORTS, BUFFER, (), by_tree, features=True)
right, wrong, missed = found.whole.tp, found.whole.fp, found.whole.fn
print(f"sent, % of LQD: {found.sent_percent_of_lqd:.2f}; drops found {right:,}, missed {missed:,}, made up {wrong:,}")

# %%
# Both models send less than Dynamic Thresholds, as most models of LQD's labels do. The objective ``sent`` of step 1 can
# train a class like the next one for the packets sent.

# %%
# **A class.** A subclass of ``TreePredictor`` is a predictor like Foretail's own. Its parameters have ranges, and the
# commands train, tune, track and export it. docs/guide/extend.md says how they find it.
from collections.abc import Sequence
from dataclasses import dataclass

import numpy.typing as npt

from foretail.api import Ensemble, TreePredictor, setting


@dataclass(eq=False)
class OneTree(TreePredictor):
    """A single decision tree."""

    depth: int = setting(1, at_least=1, at_most=12)

    def _fit(self, x: npt.NDArray[np.int32], y: npt.NDArray[np.bool_], weight: npt.NDArray[np.float64]) -> None:
        self.tree_ = DecisionTreeClassifier(max_depth=self.depth, random_state=1).fit(x, y, weight)

    def _probability(self, x: npt.NDArray[np.int32]) -> npt.NDArray[np.float64]:
        return np.asarray(self.tree_.predict_proba(x)[:, 1], np.float64)

    def _ensemble(self, features: Sequence[FeatureInput]) -> Ensemble:
        return from_estimator(self.tree_, features, self.origin())


# %%
# ``check_predictor`` names in one sentence what a class does wrong. This class passes.
from foretail.testing import check_predictor

check_predictor(OneTree)
print("OneTree keeps the contract")
