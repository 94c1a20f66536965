"""
3. Your own arrivals
====================

This program runs policies on arrivals of your own: from a table, and from a packet capture.
"""

# %%
# **A table** has the columns ``slot`` and ``port``. It may have a column ``prediction`` with your own predictions. This
# one has none, and Credence gets the true labels. Two of three inputs send to port 0 until a buffer of 6 packets is
# full.
from pathlib import Path
from tempfile import TemporaryDirectory

from foretail.api import ArrivalFile, compare

scratch = TemporaryDirectory()
folder = Path(scratch.name)
lines = [f"{slot},{port}" for slot in range(8) for port in (0, 0, slot % 3)]
(folder / "arrivals.csv").write_text("\n".join(["slot,port", *lines]) + "\n")

arrivals = ArrivalFile(folder / "arrivals.csv").batches(3, priorities=1, predictions=False)
found = compare(arrivals, 3, 6, ("lqd", "credence", "dt"), optimum=True)
print(f"{found.arrivals} packets; sent: {found.transmitted}; no policy could send more than {found.optimum}")

# %%
# **A capture** (pcap or pcapng) has the packets of a real switch. This program writes one itself, so that it runs
# anywhere. ``ports.csv`` says which destination is behind which port.
from foretail.api import read_captures, write_switch

write_switch(folder, ports=4, packets=6000, seed=1)
capture = read_captures(folder / "ingress.pcap", {}, folder / "ports.csv", ports=4)
print(capture.figures())

# %%
# A capture does not contain the buffer and the port rates of the switch, so you give them: here 100 kB, and four ports
# of 10 Gbit/s. LQD then labels the packets. No sender reacted to the drops of this buffer, which ``open_loop`` records.
from foretail.api import Dataset, Rules, Run, SwitchGeometry, write_open_loop_dataset

run = Run(
    scenario={"name": "my capture", "open_loop": True, "topology": {"wire_overhead_bytes": 24}},
    policy={"name": "lqd"},
    seed=1,
    switches=(SwitchGeometry(4, 100_000, (10_000_000_000,) * 4),),
    rules=Rules("counted", "lowest_port", "tail"),
    cell_bytes=256,
    average_shift=15,
    versions={},
)
write_open_loop_dataset(folder / "dataset", run, capture.arrivals())
dataset = Dataset.open(folder / "dataset")
print(f"{dataset.manifest.rows:,} packets, LQD drops {dataset.manifest.drops:,}")

# %%
# You can use the result as any other dataset: train models on it, or replay policies. Dynamic Thresholds have their
# default alpha of 0.5 here. Tune alpha before you compare a model with them, as step 1 does.
import numpy as np

from foretail.api import compare_replays

told = dataset.frame(["lqd_drop"])["lqd_drop"].to_numpy() != 0
for what, predictions in (("perfect", told), ("none", np.zeros(len(told), np.bool_))):
    compared = compare_replays(dataset, ("lqd", "credence", "dt"), predictions)
    print(f"predictions {what}: {compared.transmitted}")
scratch.cleanup()

# %%
# The commands ``foretail replay arrivals=...`` and ``foretail collect source=pcap`` do the same
# (docs/guide/data.md).
