"""The swap at the end of a loop: rules take turns in the tables of a P4 switch, by what ``foretail deploy`` does.

An interpreter of entries is too slow for each packet. So packets are decided by the rule, to which the proof of an
export compares its entries, and the tables decide some packets before and after each swap.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np

from foretail.core.errors import ForetailError
from foretail.export.p4.banks import over
from foretail.export.p4.encoding import Frame
from foretail.export.p4.target import P4
from foretail.export.target import export
from foretail.features.catalog import FEATURES
from foretail.models import zoo
from foretail.sim_bridge.open_loop.known import KnownRun

if TYPE_CHECKING:
    from foretail_studies.predictors.memory_switch import MemorySwitch

PACKETS = 20
"""Packets that the tables decide before and after a swap."""
WORDS, ROWS = 8, 1024
"""Sizes of a bank that has room for each rule of the zoo: code words of a feature, rows of a table."""


def swapped(names: Sequence[str], run: KnownRun, address: str | None = None) -> dict[str, float]:
    """Let rules of the zoo take turns in the banks of a switch, and return what a swap took, the first rule left out.

    ForetailError when the tables decide a packet of a run otherwise than the rule that is live.

    Parameters
    ----------
    names : of the rules, in the order of their turns
    run : whose packets are compared
    address : of a switch whose program has banks for these rules; None: one in memory, which alone is compared
    """
    from foretail.export.p4.runtime import BANKS, BankedProgram, BankedSwitch, P4RuntimeSwitch, tag_of
    from foretail_studies.predictors.memory_switch import MemorySwitch

    features = zoo.rule(names[0]).ensemble().features
    memory = MemorySwitch(Frame({one.name: one.params for one in features}, len(features), WORDS, ROWS))
    taken: list[dict[str, float]] = []
    with nullcontext(memory) if address is None else P4RuntimeSwitch(address) as client, TemporaryDirectory() as folder:
        info = None if client is memory else client.program()
        switch = BankedSwitch(client, memory.banked if info is None else BankedProgram.of(info), drain_seconds=0)
        frame = switch.program.frame
        for place, name in enumerate(names):
            bank, model = switch.live().other, zoo.rule(name).ensemble()
            done = export(over(model, frame), P4(frame=frame, bank=BANKS[bank]), Path(folder) / str(place))
            entries, tau = done.file(".entries.txtpb").read_text(), done.ensemble.require_votes()[1]
            before, clock, cpu = memory.written_bytes, time.perf_counter(), time.process_time()
            switch.fill(bank, entries, tau, tag_of(model.sha256))
            switch.flip()
            took = {"swap_ms": time.perf_counter() - clock, "swap_cpu_ms": time.process_time() - cpu}
            written = {"rows": len(switch.rows(bank)), "entry_bytes": memory.written_bytes - before}
            taken.append({key: 1000 * seconds for key, seconds in took.items()} | written)
            if client is memory:
                require_same(memory, name, run)
    return {key: float(np.mean([one[key] for one in taken[1:] or taken])) for key in taken[0]}


def require_same(switch: MemorySwitch, name: str, run: KnownRun) -> None:
    """Raise ForetailError unless the tables of a switch decide some packets of a run as a rule does."""
    seen = run.visited("learned", zoo.rule(name).scorer(), rows=PACKETS, seed=1)
    columns = [[one.name for one in FEATURES].index(feature) for feature in switch.banked.frame.features]
    for x, margin in zip(seen.features[:, columns].tolist(), seen.value.tolist(), strict=True):
        if switch.drops(x) != (margin > 0):
            raise ForetailError(f"the tables decide {x} otherwise than the rule {name}: report this as a bug")
