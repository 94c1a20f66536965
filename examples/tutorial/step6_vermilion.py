"""
6. Vermilion in ten minutes
===========================

Optical circuits between racks, scheduled from a prediction of the demand, with a floor if the prediction is wrong.
"""

# %%
# **Demand.** Eight racks with two uplinks each. Every rack sends to the next one, most of the time: a ring, with some
# traffic between all.
import numpy as np

from foretail.sim_bridge.circuits.demand.matrices import permutation, skewed_ring

NODES, DEGREE = 8, 2
demand = skewed_ring(NODES, DEGREE, skew=0.8)
print(np.round(demand.demand[:3], 2))

# %%
# **Two schedules.** A period of matchings that repeats. k is how many circuits a rack has in it, in multiples of the
# racks; with k = 1 everybody gets one circuit to everybody, whatever the demand. With k = 4, three of four follow it.
from foretail.sim_bridge.circuits.schedules.vermilion import single_hop_guarantee, vermilion
from foretail.sim_bridge.circuits.throughput.throughput import single_hop

for k in (1, 2, 4, 8):
    schedule = vermilion(demand, DEGREE, k)
    theta = single_hop(demand, schedule.capacity)
    print(f"k = {k}: {schedule.period} slots, throughput {theta:.3f}, guaranteed {single_hop_guarantee(k):.3f}")

# %%
# **A wrong prediction.** The schedule is made for another matrix than the one that comes. The circuits that everybody
# has to everybody keep a floor.
other = permutation(NODES, DEGREE, seed=2)
for k in (2, 4, 8):
    wrong = vermilion(other, DEGREE, k)
    print(f"k = {k}: throughput {single_hop(demand, wrong.capacity):.3f} although the prediction was another matrix")

# %%
# **Learning the demand.** A training job repeats itself: two intervals of even input, three of gradients along a ring.
# The last matrix is a poor guess at every change; a seasonal predictor finds the period in other runs.
from foretail.models.demand.averages import LastValue, Seasonal
from foretail.sim_bridge.circuits.demand.sequences import data_parallel, repeated

runs = [
    repeated(data_parallel(NODES, DEGREE), 40, 1_000_000, f"run {seed}", seed, placed_at_random=True, noise=0.1)
    for seed in (1, 2, 3)
]
wanted = runs[2].demand
for predictor in (LastValue(), Seasonal(longest=8)):
    predictor.fit(runs[:2])
    off = [np.abs(predictor.unprojected(wanted[:step]) - wanted[step]).sum() for step in range(10, 40)]
    print(f"{type(predictor).__name__}: off by {100 * sum(off) / wanted[10:].sum():.0f} % of the traffic")

# %%
# **To the switch.** The schedule as JSON, as a C table, or as P4 entries for each rack; each is read back and compared.
from foretail.export.schedule import render_schedule
from foretail.export.schedule.planned import PlannedSchedule

schedule = vermilion(demand, DEGREE, 4)
planned = PlannedSchedule(schedule, 4, 1, single_hop(demand, schedule.capacity), None)
files = render_schedule(planned, ("json", "c", "p4"))
print({name: len(text) for name, text in files.items()})
print("\n".join(files["schedule.h"].splitlines()[:8]))

# %%
# The command is ``foretail schedule demand=demand.csv degree=4 k=3`` (docs/schedule.md).
