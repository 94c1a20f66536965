"""
5. To the switch
================

A model becomes C and P4, each with a proof that it decides as the model does, on every input.
"""

# %%
# **A model.** Two features, three trees; the labels are made up, because only the model matters here.
import numpy as np

from foretail.models.drop.forest import RandomForest
from foretail.models.ensemble.ensemble import FeatureInput

draw = np.random.default_rng(1)
x = draw.integers(0, 1000, (5000, 2))
drops = x[:, 0] + draw.integers(0, 300, 5000) > 900
forest = RandomForest(trees=3, depth=3).fit(x, drops)
model = forest.to_ensemble(
    [FeatureInput("queue", "cell_bytes=256", 16), FeatureInput("occupancy", "cell_bytes=256", 16)]
)

# %%
# **C.** ``export`` writes the code, compiles it, reads the text back, and proves both equal to the model. Were there a
# difference, nothing would be written. The model is constant on each of its cells, so one point of each proves all.
from pathlib import Path
from tempfile import TemporaryDirectory

from foretail.export.c.target import C
from foretail.export.target import export

scratch = TemporaryDirectory()
made = export(model, C(), Path(scratch.name) / "c")
print(sorted(path.name for path in made.folder.iterdir()))
proof = made.certificate
print(f"proven by {proof.method}: {proof.cells} of them; holds for {'any tau' if proof.order else proof.taus}")

# %%
# Integers only: a score, and ``drop iff score > tau``.
print("\n".join((made.folder / "drop_predictor.h").read_text().splitlines()[:12]))

# %%
# The library answers as the model does.
from foretail.export.c.build import PredictorLibrary

library = PredictorLibrary(made.file(".so"))
rows = draw.integers(0, 1 << 16, (100_000, 2))
same = (library.score(rows) > made.ensemble.require_votes()[1]) == model.exceeds(rows)
print(f"{same.sum():,} of {len(same):,} random rows decide alike")

# %%
# **P4.** Tables of ranges for the features, and of votes for what they say together. The report counts what a switch
# needs for them.
from foretail.export.p4.target import P4

made = export(model, P4(), Path(scratch.name) / "p4")
print({name: value for name, value in made.report.items() if isinstance(value, int)})
print("\n".join(line for line in made.file(".p4").read_text().splitlines() if "table" in line)[:600])
scratch.cleanup()

# %%
# The command is ``foretail export model=... target=p4`` (docs/p4.md). The same C runs in the ns-3 switch as the
# predictor of Credence, so what was simulated is what was exported.
