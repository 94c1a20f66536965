"""A P4Runtime switch in this process: a program with banks, kept as plain rows, that can also be made to misbehave.

Packets are decided as slowly as a switch may: each table is looked at on its own, while a controller writes.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import grpc
from finsy.proto import U128, p4i, p4r, p4r_grpc, rpc_code

from foretail.export.p4.encoding import Frame
from foretail.export.p4.target import P4
from foretail.export.p4.text import first_id
from foretail.export.target import export
from foretail.models.ensemble.ensemble import Ensemble

Answer = TypeVar("Answer")


def info_of(ensemble: Ensemble, frame: Frame, folder: Path, control: str = "DropPredictor") -> p4i.P4Info:
    """What p4c would say of the program that an export for this frame writes; made from its text."""
    found = p4i.P4Info()
    for bank in ("a", "b"):
        target = P4(entries="runtime", frame=frame, bank=bank, control=control)
        done = export(ensemble, target, folder / bank)
        text, prefix = done.file(".p4").read_text(), f"Prediction.predictor.bank_{bank}."
        widths = {name: int(width) for width, name in re.findall(r"\bbit<(\d+)> (\w+)[,;]", text)}
        ids: dict[str, int] = {}
        for number, name, parameters in re.findall(r"@id\((\w+)\)\n    action (\w+)\((.*)\)", text):
            made = found.actions.add()
            made.preamble.id, made.preamble.name = int(number, 16), prefix + name
            ids[name] = int(number, 16)
            for place, (width, parameter) in enumerate(re.findall(r"bit<(\d+)> (\w+)", parameters), 1):
                made.params.add(id=place, name=parameter, bitwidth=int(width))
        for number, description, name, body in re.findall(
            r'@id\((\w+)\)\n(?:    @description\("([^"]*)"\)\n)?    table (\w+) \{\n(.*?)\n    \}', text, re.DOTALL
        ):
            size = re.search(r"size = (\d+);", body)
            listed = found.tables.add(size=int(size[1]) if size else 1024)
            listed.preamble.id, listed.preamble.name = int(number, 16), prefix + name
            listed.preamble.doc.description = description
            if key := re.search(r"key = \{ (\w+) : \w+; \}", body):
                listed.match_fields.add(id=1, name=key[1], bitwidth=widths[key[1]])
            listed.action_refs.add(id=ids[re.findall(r"actions = \{ (\w+); \}", body)[0]])
    number = first_id(f"{control} banks")
    live = found.tables.add(size=1)
    live.preamble.id, live.preamble.name = 0x02000000 | number, "Prediction.predictor.live"
    action = found.actions.add()
    action.preamble.id, action.preamble.name = 0x01000000 | number, "Prediction.predictor.set_live"
    for place, (name, width) in enumerate((("number", 8), ("of_a", 32), ("of_b", 32)), 1):
        action.params.add(id=place, name=name, bitwidth=width)
    counter = found.counters.add(size=4)
    counter.preamble.id, counter.preamble.name = 0x12000000 | number, "Prediction.predictor.decisions"
    return found


class FakeSwitch(p4r_grpc.P4RuntimeServicer):
    """The state of a switch and its P4Runtime service."""

    def __init__(self, info: p4i.P4Info | None) -> None:
        self.info = info
        self.rows: dict[int, dict[bytes, p4r.TableEntry]] = {}  # table -> match -> entry
        self.defaults: dict[int, p4r.TableEntry] = {}
        self.counts = [0, 0, 0, 0]
        self.is_silent = False  # whether it opens streams and never answers on them
        self.updates = 0
        self.primary: int | None = None
        #: called with the number of an update before it is carried out; an exception refuses it
        self.before_update: Callable[[int, p4r.Update], None] = lambda number, update: None

    def _id(self, kind: str, name: str) -> int:
        listed: Any = getattr(self.info, kind)
        return next(int(one.preamble.id) for one in listed if one.preamble.name == f"Prediction.predictor.{name}")

    # --- the data plane

    def _data(self, table: str, key: int | None) -> list[int]:
        """Look a key up: the data of the entry of the highest priority that matches, else of the default action."""
        number = self._id("tables", table)
        if key is not None:
            listed = next(t for t in self.info.tables if t.preamble.id == number)  # type: ignore[union-attr]
            for entry in sorted(self.rows.get(number, {}).values(), key=lambda entry: -entry.priority):
                fits = True
                for match in entry.match:
                    mask = int.from_bytes(match.ternary.mask, "big")
                    fits &= key & mask == int.from_bytes(match.ternary.value, "big")
                assert len(listed.match_fields) == 1
                if fits:
                    return [int.from_bytes(p.value, "big") for p in entry.action.action.params]
        if number in self.defaults:
            return [int.from_bytes(p.value, "big") for p in self.defaults[number].action.action.params]
        return [0] * 3

    def _decide(self, bank: str, x: Mapping[str, int], frame: Frame) -> tuple[int, bool]:
        key = 0
        for feature in frame.features:
            data = self._data(f"bank_{bank}.t_{feature}", x[feature])
            for word in range(frame.words - 1, -1, -1):
                key = key << 32 | data[word]
        score = sum(self._data(f"bank_{bank}.tree_{i}", key)[0] for i in range(frame.trees)) % 2**64
        tau = self._data(f"bank_{bank}.decide", None)[0]
        score, tau = (value - 2**64 if value >> 63 else value for value in (score, tau))
        return score, score > tau

    def packet(self, x: Mapping[str, int], frame: Frame) -> tuple[int, int, bool]:
        """Decide a packet: the tag that it says, its score and whether it is dropped."""
        bank, *tags = self._data("live", None)
        found = [self._decide(side, x, frame) for side in "ab"]
        score, drop = found[bank][0], found[bank][1] and tags[bank] != 0
        self.counts[2 * drop + found[1 - bank][1]] += 1
        return tags[bank], score, drop

    # --- the service

    def StreamChannel(self, requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
        for request in requests:
            if self.is_silent:
                continue
            wanted = U128.decode(request.arbitration.election_id)
            first = self.primary is None or wanted > self.primary
            if first:
                self.primary = wanted
                context.add_callback(lambda: setattr(self, "primary", None))
            answer = p4r.StreamMessageResponse()
            answer.arbitration.status.code = rpc_code.OK if first else rpc_code.ALREADY_EXISTS
            yield answer

    def GetForwardingPipelineConfig(self, request: Any, context: grpc.ServicerContext) -> Any:
        if self.info is None:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, "No forwarding pipeline config set for this device")
        return p4r.GetForwardingPipelineConfigResponse(config=p4r.ForwardingPipelineConfig(p4info=self.info))

    def SetForwardingPipelineConfig(self, request: Any, context: grpc.ServicerContext) -> Any:
        self.info = request.config.p4info
        self.rows, self.defaults, self.counts = {}, {}, [0, 0, 0, 0]
        return p4r.SetForwardingPipelineConfigResponse()

    def Capabilities(self, request: Any, context: grpc.ServicerContext) -> Any:
        return p4r.CapabilitiesResponse(p4runtime_api_version="1.4.0")

    def Write(self, request: Any, context: grpc.ServicerContext) -> Any:
        for update in request.updates:
            self.updates += 1
            try:
                self.before_update(self.updates, update)
                self._update(update)
            except (ValueError, KeyError) as error:
                context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"{type(error).__name__}: {error}")
        return p4r.WriteResponse()

    def _update(self, update: p4r.Update) -> None:
        if update.entity.HasField("counter_entry"):
            counter = update.entity.counter_entry
            self.counts[counter.index.index] = counter.data.packet_count
            return
        entry = update.entity.table_entry
        if entry.is_default_action:
            self.defaults[entry.table_id] = entry
            return
        rows = dict(self.rows.get(entry.table_id, {}))  # packets look at the old ones meanwhile
        at = b"".join(m.SerializeToString() for m in entry.match) + entry.priority.to_bytes(4, "big")
        if (update.type == p4r.Update.INSERT) == (at in rows):
            raise ValueError("the entry is there" if at in rows else "there is no such entry")
        if any(not m.ternary.mask.strip(b"\0") for m in entry.match):
            raise ValueError("a field that does not matter is to be left out")
        if update.type == p4r.Update.DELETE:
            del rows[at]
        else:
            listed = next(t for t in self.info.tables if t.preamble.id == entry.table_id)  # type: ignore[union-attr]
            if len(rows) >= listed.size:
                raise ValueError("table full")
            rows[at] = entry
        self.rows[entry.table_id] = rows

    def Read(self, request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        answer = p4r.ReadResponse()
        for entity in request.entities:
            if entity.HasField("counter_entry"):
                for index, count in enumerate(self.counts):
                    found = answer.entities.add().counter_entry
                    found.counter_id, found.index.index = entity.counter_entry.counter_id, index
                    found.data.packet_count = count
            elif entity.table_entry.is_default_action:
                table = entity.table_entry.table_id
                if table in self.defaults:
                    answer.entities.add().table_entry.CopyFrom(self.defaults[table])
                else:
                    action = answer.entities.add().table_entry.action.action
                    for number in range(1, 4 if table == self._id("tables", "live") else 2):
                        action.params.add(param_id=number, value=b"\0")
            else:
                for entry in self.rows.get(entity.table_entry.table_id, {}).values():
                    answer.entities.add().table_entry.CopyFrom(entry)
        yield answer


@contextmanager
def served(switch: FakeSwitch) -> Iterator[str]:
    """Serve a switch on a free port of 127.0.0.1; yields the address."""
    pool = ThreadPoolExecutor(8)
    server = grpc.server(pool)
    p4r_grpc.add_P4RuntimeServicer_to_server(switch, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(None).wait()
        pool.shutdown()


@contextmanager
def packets_meanwhile(send: Callable[[int], Answer]) -> Iterator[list[Answer]]:
    """Send packet after packet in a thread of its own; yields what came back so far."""
    found: list[Answer] = []
    ends = threading.Event()

    def work() -> None:
        while not ends.is_set():
            found.append(send(len(found)))

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield found
    finally:
        ends.set()
        thread.join()
