"""
1. A first predictor
====================

Traffic, labels, a model, what it is worth, and a model that is worth more: seven cells.

A switch with 20 ports shares one buffer. LQD throws out queued packets when the buffer is full; a real switch cannot.
First we learn from the features of an arriving packet whether LQD would drop it. Then we learn what to drop so that
most packets are sent.
"""

# %%
# **Traffic.** Runs of bursts over steady packets, in slots, each with a seed of its own. LQD labels every packet.
from pathlib import Path
from tempfile import TemporaryDirectory

from foretail.features.dataset.reader import Dataset
from foretail.sim_bridge.arrivals.workloads import Incast
from foretail.sim_bridge.open_loop.dataset import write_open_loop_dataset
from foretail.sim_bridge.open_loop.slotted_dataset import arrivals_in_bytes, slotted_run

scratch = TemporaryDirectory()
PORTS, BUFFER_PER_PORT, SLOTS = 20, 50, 4000
TRAIN, VALIDATION, TEST = (1, 2, 3, 4), (5, 6), (7, 8, 9, 10, 11, 12)


def collect(seed: int) -> Dataset:
    """One labelled run."""
    path, traffic = Path(scratch.name) / f"run{seed}", Incast(load=0.15, fan_in=5, background_load=0.8)
    run = slotted_run(traffic, PORTS, BUFFER_PER_PORT, SLOTS, seed, cell_bytes=1024)
    packets = traffic.batches(PORTS, PORTS * BUFFER_PER_PORT, SLOTS, seed)
    write_open_loop_dataset(path, run, arrivals_in_bytes(packets))
    return Dataset.open(path)


runs = {seed: collect(seed) for seed in (*TRAIN, *VALIDATION, *TEST)}
for seed in (1, 2, 3):
    print(f"{runs[seed].manifest.rows:,} packets, LQD drops {runs[seed].manifest.drops:,}")

# %%
# **Rows.** Whole runs go to one side of the split, so that no traffic is on two. Features come from the catalog; these
# are what a switch with a virtual LQD beside it can count.
from foretail.features.catalog import FEATURE_GROUPS, training_columns
from foretail.features.rows.labelled_rows import read_rows
from foretail.features.rows.splits import split_by_seed
from foretail.models.ensemble.ensemble import FeatureInput

known = {feature.name: feature for feature in runs[1].manifest.features}


def inputs_of(names: tuple[str, ...]) -> list[FeatureInput]:
    """What a model has to know of its features."""
    return [FeatureInput(name, known[name].params, known[name].bits) for name in names]


NAMES = FEATURE_GROUPS["switch"]
print(", ".join(NAMES))
split = split_by_seed(list(runs.values()), train=TRAIN, validation=VALIDATION, test=TEST)
columns = training_columns(NAMES, own_queues=False)
train, validation = (read_rows(side, columns) for side in (split.train, split.validation))

# %%
# **A model of the labels.** A small forest. Its threshold is chosen on the validation runs, never on the test runs.
from foretail.models.drop.forest import RandomForest
from foretail.models.scoring.operating_point import choose_operating_point

forest = RandomForest(trees=4, depth=4).fit(train.x, train.lqd_drop)
ensemble = forest.to_ensemble(inputs_of(NAMES))
point = choose_operating_point(ensemble, validation.x, validation.lqd_drop)
model = ensemble.with_threshold(point.threshold)
print(f"drop above a probability of {point.probability:.3f}")

# %%
# **Scores** on runs that it never saw. Most packets are not dropped, so accuracy says little: look at F1.
import numpy as np

from foretail.models.scoring.metrics import Confusion

test = read_rows(split.test, columns)
predicted = model.exceeds(test.x)
counts = Confusion.count(test.lqd_drop, predicted)
print(
    f"accuracy {counts.accuracy:.3f}, precision {counts.precision:.3f}, recall {counts.recall:.3f}, F1 {counts.f1:.3f}"
)

# %%
# **What it is worth.** Credence runs over the same packets with these predictions. What it sends, in % of LQD, is the
# figure that counts. Beside it stand Credence that always accepts, and policies that ask no model, such as Dynamic
# Thresholds (DT), with the alpha that sends most on the runs that trained and validated.
from foretail.sim_bridge.open_loop.baselines import judged, tuned
from foretail.sim_bridge.open_loop.replay import ReplayScores, replay_scores

test_runs = [selection.dataset for selection in split.test]
ends = np.cumsum([run.manifest.rows for run in test_runs])[:-1]
worth = ReplayScores.together(list(map(replay_scores, test_runs, np.split(predicted, ends))))
print(f"labels learned: sent {worth.sent_percent_of_lqd:.2f} % of LQD, recovered loss {worth.recovered_loss:.2f}")
print(f"always accept: sent {100 * worth.accept_bytes / worth.lqd_bytes:.2f} % of LQD")
tuned_policies = tuned([runs[seed] for seed in (*TRAIN, *VALIDATION)])
for policy in judged(test_runs, tuned_policies, worth.lqd_bytes, worth.accept_bytes):
    print(f"{policy['title']}: sent {policy['sent_percent_of_lqd']:.2f} %, recovered {policy['recovered_loss']:.2f}")

# %%
# **A model that is worth more.** DT sends more than the forest, and needs no model. So train for what is sent. A search
# finds a threshold that adapts to the switch's state. Trees learn it, also on the arrivals that they meet themselves.
# They decide about every packet, while the run goes on.
from foretail.configs.schema.training import Objective
from foretail.models.drop.boosted import BoostedTrees
from foretail.models.ensemble.scorers import served_by
from foretail.pipelines.training.sending import train_for_sending
from foretail.sim_bridge.open_loop.replay import served_scores

trained = train_for_sending(
    Objective(name="sent"),
    lambda: BoostedTrees(trees=4, depth=4, learning_rate=1.0),
    split.train,
    split.validation,
    inputs_of(FEATURE_GROUPS["threshold"]),
)
served = served_by(trained.best.model)
assert served is not None
sent = ReplayScores.together([served_scores(run, served) for run in test_runs])
print(f"trained for what is sent: {sent.sent_percent_of_lqd:.2f} % of LQD, recovered loss {sent.recovered_loss:.2f}")
scratch.cleanup()

# %%
# The command ``foretail train objective.name=sent features=threshold`` does the same with a store, tracking and more
# checks. On other traffic there may be nothing to win (docs/results/prediction-map.md). Next: a model of your own.
