"""An Etalon log as arrivals at the virtual output queues (VOQs) of its source racks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from foretail.core.errors import ForetailError
from foretail.features.records import ARRIVAL_DTYPE, FlowClass, Records
from foretail.sim_bridge.imports.etalon.records import Chunk, RecordFile
from foretail.sim_bridge.imports.etalon.survey import Findings, Survey


@dataclass
class EtalonLog(RecordFile):
    """A packet log that can be surveyed and then read; make one with :meth:`open`."""

    _flows: dict[bytes, int] = field(default_factory=dict)

    def survey(self, report: Callable[[int], None] = lambda records: None) -> Survey:
        """Read the log once and check it; `report` is called with the number of records read so far.

        ForetailError on a record that is no packet or event, times that run backwards, latencies below the propagation
        delay (so in another unit), circuits that go up twice, days of another length, VOQs beyond their capacity, a
        network with less than three racks, or no packets at all.
        """
        findings = Findings(self)
        for chunk in self.chunks(report):
            findings.add(chunk)
        return findings.survey()

    def arrivals(self, survey: Survey, report: Callable[[int], None] = lambda records: None) -> Iterator[Records]:
        """Yield the packets in the order in which they reached their VOQ.

        One switch per source rack; its ports are the other racks, in order. Memory depends on the disorder of the log,
        not on its length. ForetailError when more than 1 % of the circuit's packets left while no circuit was up.
        Yields (n,) array of ARRIVAL_DTYPE: ``time_ns`` from the first arrival on, ``switch``, ``port``, ``size_bytes``
        (of the IP packet), ``flow`` (numbered as they appear) and ``flow_class`` (TCP without payload is control) are
        filled, the rest is zero.
        """
        waiting = np.empty(0, ARRIVAL_DTYPE)
        latest = -(2**62)
        astray = 0
        for chunk in self.chunks(report):
            astray += self._astray(chunk, survey)
            waiting = np.concatenate([waiting, self._records(chunk, survey)])
            waiting = waiting[np.argsort(waiting["time_ns"], kind="stable")]
            if len(waiting):
                latest = max(latest, int(waiting["time_ns"][-1]))
            ready = int(np.searchsorted(waiting["time_ns"], latest - survey.disorder_ns, side="right"))
            if ready:
                yield waiting[:ready]
                waiting = waiting[ready:]
        if astray > 0.01 * survey.circuit_packets:
            raise ForetailError(
                f"the log {self.path} has {astray} of {survey.circuit_packets} circuit packets outside the time of "
                "their circuit: its events or its circuit bits are wrong, such as bits set by a sender with ECN ECT(1)"
            )
        if len(waiting):
            yield waiting

    def _records(self, chunk: Chunk, survey: Survey) -> Records:
        records = np.zeros(len(chunk.record), ARRIVAL_DTYPE)
        records["time_ns"] = chunk.in_ns - survey.start_ns
        records["flow"] = self._flow(chunk.flow_key)
        records["size_bytes"] = chunk.size_bytes
        records["switch"] = chunk.source - 1
        records["port"] = chunk.destination - 1 - (chunk.destination > chunk.source)
        records["flow_class"] = np.where(chunk.data, FlowClass.BACKGROUND, FlowClass.CONTROL)
        return records

    def _flow(self, key: NDArray[np.void]) -> NDArray[np.int64]:
        distinct, first, inverse = np.unique(key, return_index=True, return_inverse=True)
        number = np.empty(len(distinct), np.int64)
        for position in np.argsort(first):
            number[position] = self._flows.setdefault(distinct[position].tobytes(), len(self._flows))
        return number[inverse]

    def _astray(self, chunk: Chunk, survey: Survey) -> int:
        """Circuit packets that did not leave between the start of a day of their pair and its end plus the delay."""
        if not survey.days or not chunk.circuit.any():
            return 0
        astray = 0
        out_ns = chunk.out_ns - survey.start_ns
        pair = chunk.source * (survey.racks + 1) + chunk.destination
        for number in np.unique(pair[chunk.circuit]):
            chosen = out_ns[chunk.circuit & (pair == number)]
            days = survey.days.get(divmod(int(number), survey.racks + 1))
            if days is None:
                astray += len(chosen)
                continue
            # before the first day that the log saw begin, and after the last that it saw end, nothing is known
            known = (chosen >= days[0, 0]) & (chosen <= days[-1, 1])
            day = np.clip(np.searchsorted(days[:, 0], chosen, side="right") - 1, 0, None)
            astray += int(np.count_nonzero(known & (chosen > days[day, 1] + self.reading.circuit_delay_ns)))
        return astray
