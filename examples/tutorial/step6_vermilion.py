"""
6. Vermilion in ten minutes
===========================

This program schedules optical circuits between racks from a predicted demand. The schedule guarantees a throughput even
if the prediction is wrong.
"""

# %%
# **Demand.** There are eight racks with two uplinks each. Most traffic of a rack goes to one rack, which is drawn at
# random. The rest goes to the next rack, so that these parts form a ring.
import numpy as np

from foretail.api import permutation, skewed_ring

NODES, DEGREE = 8, 2
demand = skewed_ring(NODES, DEGREE, skew=0.8)
print(np.round(demand.demand[:3], 2))

# %%
# **Four schedules.** A schedule is a period of matchings that repeats. In one period a rack has k circuits per rack of
# the network. With k = 1 every pair of racks gets one circuit, for all demands. With k = 4, three of four circuits
# follow the demand.
from foretail.api import single_hop, single_hop_guarantee, vermilion

for k in (1, 2, 4, 8):
    schedule = vermilion(demand, DEGREE, k)
    theta = single_hop(demand, schedule.capacity)
    print(f"k = {k}: {schedule.period} slots, throughput {theta:.3f}, guaranteed {single_hop_guarantee(k):.3f}")

# %%
# **A wrong prediction.** This schedule is made for another matrix than the demand. Its throughput does not fall to
# zero, because every pair of racks keeps a circuit.
other = permutation(NODES, DEGREE, seed=2)
for k in (2, 4, 8):
    wrong = vermilion(other, DEGREE, k)
    print(f"k = {k}: throughput {single_hop(demand, wrong.capacity):.3f} although the prediction was another matrix")

# %%
# **Learning the demand.** A training job repeats itself: two intervals of even input, and three of gradients along a
# ring. The last matrix is a poor guess whenever the demand changes. A seasonal predictor learns the period from other
# runs.
from foretail.api import LastValue, Seasonal, data_parallel, repeated

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
# **To the switch.** Foretail exports the schedule as JSON, as a C table, or as P4 entries for each rack. It reads each
# file back and compares it with the schedule.
from foretail.api import PlannedSchedule, render_schedule

schedule = vermilion(demand, DEGREE, 4)
planned = PlannedSchedule(schedule, 4, 1, single_hop(demand, schedule.capacity), None)
files = render_schedule(planned, ("json", "c", "p4"))
print({name: len(text) for name, text in files.items()})
print("\n".join(files["schedule.h"].splitlines()[:8]))

# %%
# The command ``foretail schedule demand=demand.csv degree=4 k=3`` does the same (docs/guide/vermilion.md).
