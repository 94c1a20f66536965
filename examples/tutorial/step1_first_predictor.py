"""
1. A first predictor
====================

Traffic, labels, a model, and what it is worth: five cells.

A switch with 20 ports shares one buffer. LQD throws out queued packets when the buffer is full; a real switch cannot.
We learn from the features of an arriving packet whether LQD would drop it.
"""

# %%
# **Traffic.** Three runs of bursts over steady packets, in slots, each with a seed of its own. LQD labels every packet.
from pathlib import Path
from tempfile import TemporaryDirectory

from foretail.features.dataset.reader import Dataset
from foretail.sim_bridge.arrivals.workloads import Incast
from foretail.sim_bridge.open_loop.dataset import write_open_loop_dataset
from foretail.sim_bridge.open_loop.slotted_dataset import arrivals_in_bytes, slotted_run

scratch = TemporaryDirectory()
PORTS, BUFFER_PER_PORT, SLOTS = 20, 50, 4000


def collect(seed: int) -> Dataset:
    """One labelled run."""
    path, traffic = Path(scratch.name) / f"run{seed}", Incast(load=0.15, fan_in=5, background_load=0.8)
    run = slotted_run(traffic, PORTS, BUFFER_PER_PORT, SLOTS, seed, cell_bytes=1024)
    packets = traffic.batches(PORTS, PORTS * BUFFER_PER_PORT, SLOTS, seed)
    write_open_loop_dataset(path, run, arrivals_in_bytes(packets))
    return Dataset.open(path)


runs = [collect(seed) for seed in (1, 2, 3)]
for found in runs:
    print(f"{found.manifest.rows:,} packets, LQD drops {found.manifest.drops:,}")

# %%
# **Rows.** Whole runs go to one side of the split, so that no traffic is on two. Features come from the catalog; these
# are what a switch with a virtual LQD beside it can count.
from foretail.features.catalog import FEATURE_GROUPS, training_columns
from foretail.features.rows.labelled_rows import read_rows
from foretail.features.rows.splits import split_by_seed
from foretail.models.ensemble.ensemble import FeatureInput

NAMES = FEATURE_GROUPS["switch"]
print(", ".join(NAMES))
split = split_by_seed(runs, train=[1], validation=[2], test=[3])
columns = training_columns(NAMES, own_queues=False)
known = {feature.name: feature for feature in runs[0].manifest.features}
inputs = [FeatureInput(name, known[name].params, known[name].bits) for name in NAMES]
train, validation, test = (read_rows(side, columns) for side in (split.train, split.validation, split.test))

# %%
# **A model.** A small forest. Its threshold is chosen on the validation run, never on the test run.
from foretail.models.drop.forest import RandomForest
from foretail.models.scoring.operating_point import choose_operating_point

forest = RandomForest(trees=4, depth=4).fit(train.x, train.lqd_drop)
ensemble = forest.to_ensemble(inputs)
point = choose_operating_point(ensemble, validation.x, validation.lqd_drop)
model = ensemble.with_threshold(point.threshold)
print(f"drop above a probability of {point.probability:.3f}")

# %%
# **Scores** on the run that it never saw. Most packets are not dropped, so accuracy says little: look at F1.
from foretail.models.scoring.metrics import Confusion

predicted = model.exceeds(test.x)
counts = Confusion.count(test.lqd_drop, predicted)
print(
    f"accuracy {counts.accuracy:.3f}, precision {counts.precision:.3f}, recall {counts.recall:.3f}, F1 {counts.f1:.3f}"
)

# %%
# **What it is worth.** Credence runs over the same packets with these predictions. What it sends, in % of LQD, is the
# figure that counts; beside it stands what Credence sends without a predictor.
import numpy as np

from foretail.sim_bridge.open_loop.replay import replay_scores

with_model = replay_scores(runs[2], predicted)
without = replay_scores(runs[2], np.zeros(len(predicted), np.bool_))
print(f"sent, % of LQD: {with_model.sent_percent_of_lqd:.2f} with the model, {without.sent_percent_of_lqd:.2f} without")
print(f"eta {with_model.eta:.4f}, recovered loss {with_model.recovered_loss:.2f}")
scratch.cleanup()

# %%
# The command ``foretail train`` does the same with a store, tracking and more checks. Next: a model of your own.
