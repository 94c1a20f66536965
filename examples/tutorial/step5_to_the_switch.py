"""
5. To the switch
================

This program exports a model as C and as P4, each with a proof that it decides as the model does on every input.
"""

# %%
# **A model.** It has two features and three trees. The labels are invented, because only the export matters here.
import numpy as np

from foretail.api import FeatureInput, RandomForest

draw = np.random.default_rng(1)
x = draw.integers(0, 1000, (5000, 2))
drops = x[:, 0] + draw.integers(0, 300, 5000) > 900
forest = RandomForest(trees=3, depth=3).fit(x, drops)
model = forest.to_ensemble(
    [FeatureInput("queue", "cell_bytes=256", 16), FeatureInput("occupancy", "cell_bytes=256", 16)]
)

# %%
# **C.** ``export`` writes the code, compiles it, reads the text back, and proves both equal to the model. If they
# differed, it would write nothing. The model is constant on each of its cells, so one point per cell proves all inputs.
from pathlib import Path
from tempfile import TemporaryDirectory

from foretail.api import C, export

scratch = TemporaryDirectory()
made = export(model, C(), Path(scratch.name) / "c")
print(sorted(path.name for path in made.folder.iterdir()))
proof = made.certificate
print(f"proven by {proof.method}: {proof.cells} of them; holds for {'any tau' if proof.order else proof.taus}")

# %%
# The C code computes with integers only. It returns a score, and a packet is dropped if the score is above tau.
print("\n".join((made.folder / "drop_predictor.h").read_text().splitlines()[:12]))

# %%
# The compiled library decides as the model does, here on random rows.
from foretail.api import PredictorLibrary

library = PredictorLibrary(made.file(".so"))
rows = draw.integers(0, 1 << 16, (100_000, 2))
same = (library.score(rows) > made.ensemble.require_votes()[1]) == model.exceeds(rows)
print(f"{same.sum():,} of {len(same):,} random rows decide alike")

# %%
# **P4.** The program has tables of ranges for the features, and tables of votes for combinations of these ranges. The
# report counts what they take in a switch.
from foretail.api import P4

made = export(model, P4(), Path(scratch.name) / "p4")
print({name: value for name, value in made.report.items() if isinstance(value, int)})
print("\n".join(line for line in made.file(".p4").read_text().splitlines() if "table" in line)[:600])
scratch.cleanup()

# %%
# The command ``foretail export model=... target=p4`` does the same (docs/guide/export.md). The exported C is also the
# predictor of Credence in the simulated switch, so you simulate exactly what you export.
