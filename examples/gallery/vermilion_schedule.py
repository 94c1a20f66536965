"""
What does a schedule for the predicted demand gain?
===================================================

Optical circuits connect pairs of racks, slot by slot. A round robin gives each pair the same time, for all demands.
Vermilion gives more time to the pairs whose demand is predicted to be large, and keeps a part for all the others.
"""

# %%
# **Demand.** There are 16 racks with 4 uplinks each. Most traffic of a rack goes to one rack that is drawn at
# random. The rest goes to the next rack.
import matplotlib.pyplot as plt
import numpy as np

from foretail.api import multi_hop, permutation, round_robin, single_hop, skewed_ring, vermilion

RACKS, UPLINKS = 16, 4
demand = skewed_ring(RACKS, UPLINKS, skew=0.7)

# %%
# **Throughput** is the largest factor by which all of a demand can be sent at once, at most 1 here. It is larger if
# packets may take detours over other racks. With k = 4, three of four circuits of Vermilion follow the prediction. The
# wrong prediction is another matrix than the demand.
schedules = {
    "Vermilion,\nright prediction": vermilion(demand, UPLINKS, k=4),
    "Vermilion,\nwrong prediction": vermilion(permutation(RACKS, UPLINKS, seed=2), UPLINKS, k=4),
    "round robin": round_robin(RACKS, UPLINKS),
}
direct = [single_hop(demand, schedule.capacity) for schedule in schedules.values()]
detours = [multi_hop(demand, schedule.capacity).theta for schedule in schedules.values()]
for name, *throughputs in zip(schedules, direct, detours, strict=True):
    print(f"{name.replace(chr(10), ' ')}: direct {throughputs[0]:.3f}, with detours {throughputs[1]:.3f}")

# %%
# With a right prediction, Vermilion sends more on direct circuits than round robin does with detours. With a wrong one,
# each pair keeps a circuit, but direct traffic is slow, and detours help.
figure, (wanted, given, bars) = plt.subplots(1, 3, figsize=(10, 3.2), layout="constrained", width_ratios=(1, 1, 1.4))
for axes, matrix, title in (
    (wanted, demand.demand, "demand"),
    (given, next(iter(schedules.values())).capacity, "circuits of Vermilion"),
):
    colours = axes.imshow(matrix, cmap="Blues", vmin=0, vmax=UPLINKS)
    axes.set(title=title, xlabel="to rack", ylabel="from rack")
figure.colorbar(colours, ax=given, label="uplinks")
place = np.arange(len(schedules))
bars.barh(place - 0.2, direct, 0.4, label="direct")
bars.barh(place + 0.2, detours, 0.4, label="with detours", hatch="//")
bars.set(yticks=place, yticklabels=list(schedules), xlabel="throughput", xlim=(0, 1))
bars.invert_yaxis()
bars.legend()
plt.show()
