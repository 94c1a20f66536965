"""
Does the exported C decide as my forest does?
=============================================

This program exports a random forest of scikit-learn as C, and compares the decisions of both. ``export`` proves that
they are equal on every input, and writes nothing if they are not.
"""

# %%
# **A forest.** It predicts drops from the length of the queue and the occupancy of the buffer. The labels are invented:
# a packet is lost if its queue is longer than 4 times the free buffer, and 5 % of the labels are wrong.
from pathlib import Path
from tempfile import TemporaryDirectory

import matplotlib.pyplot as plt
import numpy as np
from sklearn.ensemble import RandomForestClassifier

from foretail.api import C, FeatureInput, PredictorLibrary, export, from_estimator

BITS = 9
VALUES = 1 << BITS
draw = np.random.default_rng(1)
x = draw.integers(0, VALUES, (5000, 2))
drop = (x[:, 0] > 4 * (VALUES - x[:, 1])) ^ (draw.random(len(x)) < 0.05)
forest = RandomForestClassifier(n_estimators=8, max_depth=5, random_state=1).fit(x, drop)

# %%
# **C.** ``from_sklearn`` reads the forest. The features have names of the catalog. The proof compares one point of each
# box of inputs on which the forest is constant.
inputs = [FeatureInput(name, "cell_bytes=256", BITS) for name in ("queue", "occupancy")]
with TemporaryDirectory() as scratch:
    made = export(from_estimator(forest, inputs), C(), Path(scratch) / "c")
    library = PredictorLibrary(made.file(".so"))
    lines = made.file(".c").read_text().splitlines()
_, tau = made.ensemble.require_votes()
print(f"{len(lines)} lines of C, proven equal on {made.certificate.cells:,} boxes of inputs")

# %%
# **All inputs.** Two features of 9 bits have so few values that we can also try all of them. The C returns an integer
# score, and a packet is dropped if the score is above tau.
queue, occupancy = np.meshgrid(np.arange(VALUES), np.arange(VALUES))
every = np.stack([queue.ravel(), occupancy.ravel()], axis=1)
score = library.score(every)
by_forest = forest.predict(every)
print(f"{np.count_nonzero((score > tau) == by_forest):,} of {len(every):,} inputs decide alike")

# %%
# The colour is the score of the C. Both boundaries lie on each other.
figure, axes = plt.subplots(figsize=(6.5, 4), layout="constrained")
colours = axes.pcolormesh(queue, occupancy, score.reshape(queue.shape) / 1e6, cmap="Blues")
figure.colorbar(colours, label="score of the C (millions)")
for decides, style, colour, title in ((score > tau, "-", "C1", "C"), (by_forest, ":", "black", "scikit-learn")):
    axes.contour(queue, occupancy, decides.reshape(queue.shape), levels=[0.5], linestyles=style, colors=colour)
    axes.plot([], [], style, color=colour, label=f"{title} drops above this line")
axes.set(xlabel="queue (cells)", ylabel="occupancy of the buffer (cells)")
axes.legend(loc="lower left")
plt.show()
