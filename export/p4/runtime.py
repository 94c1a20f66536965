"""A running switch with banks, reached by P4Runtime: the models that they hold, and how another one takes their place.

Every packet reads the number of the live bank once, so one write changes all decisions at once. The other bank is
written at leisure: its tag is 0 until all its entries are there and have been read back. So whatever fails before that
one write leaves the live model as it was.

Specification: P4Runtime 1.4 (p4.org). Messages and stubs are those of the package finsy.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from queue import SimpleQueue
from types import TracebackType
from typing import Literal, Self

import grpc
from finsy.proto import U128, p4i, p4r, p4r_grpc, rpc_code, rpc_status
from google.protobuf import text_format
from google.protobuf.message import DecodeError

from foretail.core.errors import ForetailError
from foretail.export.p4.banks import bank_controls
from foretail.export.p4.encoding import WORD_BITS, Frame
from foretail.export.p4.text import CONTROL, first_id

BANKS: tuple[Literal["a", "b"], ...] = ("a", "b")
TAG_DIGITS = 8


SECONDS = 30
"""Time that a switch has for an answer."""

CONNECT_SECONDS = 10
"""Time that it has to accept a connection."""

MOST_UPDATES = 1000
"""Largest number of updates of one request."""


class P4RuntimeSwitch:
    """A P4Runtime client of the switch at an address; a context, in which this program is its primary controller.

    ForetailError from every method, in a sentence: nothing answers, another controller is the primary, or the switch
    refuses a request.

    Parameters
    ----------
    address : ``HOST:PORT``
    device_id : of the switch behind that address
    """

    def __init__(self, address: str, device_id: int = 0) -> None:
        self.address = address
        self.device_id = device_id
        self._election = U128.encode(1)

    def __enter__(self) -> Self:
        # Without retries: grpc would repeat a call without end to a peer that leaves after each connection.
        options = [("grpc.enable_http_proxy", 0), ("grpc.enable_retries", 0)]
        self._channel = grpc.insecure_channel(self.address, options=options)
        self._stub = p4r_grpc.P4RuntimeStub(self._channel)
        self._requests: SimpleQueue[p4r.StreamMessageRequest | None] = SimpleQueue()
        try:
            self._become_primary()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._close()

    def program(self) -> p4i.P4Info | None:
        """Return what the switch's program offers to control planes; None when it has no program yet."""
        request = p4r.GetForwardingPipelineConfigRequest(
            device_id=self.device_id, response_type=p4r.GetForwardingPipelineConfigRequest.P4INFO_AND_COOKIE
        )
        with self._explained("does not tell its program", without_program=True) as has_none:
            reply = self._stub.GetForwardingPipelineConfig(request, timeout=SECONDS)
        if has_none or not reply.HasField("config"):
            return None
        info: p4i.P4Info = reply.config.p4info
        return info

    def set_program(self, info: p4i.P4Info, binary: bytes) -> None:
        """Put another program onto the switch, which forgets its entries and registers."""
        with self._explained("does not take the program"):
            self._stub.SetForwardingPipelineConfig(
                p4r.SetForwardingPipelineConfigRequest(
                    device_id=self.device_id,
                    election_id=self._election,
                    action=p4r.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT,
                    config=p4r.ForwardingPipelineConfig(p4info=info, p4_device_config=binary),
                ),
                timeout=SECONDS,
            )

    def write(self, updates: Iterable[p4r.Update]) -> None:
        """Send updates, in order."""
        left = list(updates)
        for start in range(0, len(left), MOST_UPDATES):
            request = p4r.WriteRequest(
                device_id=self.device_id, election_id=self._election, updates=left[start : start + MOST_UPDATES]
            )
            with self._explained("refuses an update"):
                self._stub.Write(request, timeout=SECONDS)

    def read(self, *entities: p4r.Entity) -> list[p4r.Entity]:
        """Return what matches; fields that are not set match everything."""
        with self._explained("does not answer"):
            answers = self._stub.Read(p4r.ReadRequest(device_id=self.device_id, entities=entities), timeout=SECONDS)
            return [entity for answer in answers for entity in answer.entities]

    def _become_primary(self) -> None:
        arbitration = p4r.MasterArbitrationUpdate(device_id=self.device_id, election_id=self._election)
        self._requests.put(p4r.StreamMessageRequest(arbitration=arbitration))
        with self._explained("does not make this program its controller"):
            try:
                grpc.channel_ready_future(self._channel).result(timeout=CONNECT_SECONDS)
            except grpc.FutureTimeoutError:
                raise ForetailError(
                    f"nothing answers at {self.address}: start the switch with its P4Runtime server there, or name "
                    f"another address (switch=HOST:PORT)"
                ) from None
            self._stream = self._stub.StreamChannel(iter(self._requests.get, None), timeout=None)
            answer = self._first_answer()
        if answer.arbitration.status.code != rpc_code.OK:
            raise ForetailError(
                f"another controller is the primary of the switch at {self.address}: stop it, then try again"
            )

    def _first_answer(self) -> p4r.StreamMessageResponse:
        """The first message of the stream, which itself stays open without a deadline."""
        deadline = threading.Timer(CONNECT_SECONDS, self._stream.cancel)
        deadline.start()
        try:
            answer: p4r.StreamMessageResponse = next(self._stream)
            return answer
        except StopIteration:
            pass
        except grpc.RpcError as error:
            if error.code() != grpc.StatusCode.CANCELLED:
                raise
        finally:
            deadline.cancel()
        raise ForetailError(
            f"the switch at {self.address} does not say within {CONNECT_SECONDS:g} s whether this program may control "
            f"it: look at its log"
        )

    def _close(self) -> None:
        self._requests.put(None)
        self._channel.close()

    @contextmanager
    def _explained(self, what: str, without_program: bool = False) -> Iterator[list[bool]]:
        """Turn an error of the connection into a sentence; yields a list that is filled when there is no program."""
        has_none: list[bool] = []
        try:
            yield has_none
        except grpc.RpcError as error:
            code, message = error.code(), _reason(error)
            if without_program and code == grpc.StatusCode.FAILED_PRECONDITION:
                has_none.append(True)
                return
            if "election id" in message.lower():
                raise ForetailError(
                    f"another controller is the primary of the switch at {self.address}: stop it, then try again"
                ) from None
            raise ForetailError(
                f"the switch at {self.address} {what} ({code.name.lower().replace('_', ' ')}: {message[:200]}): look "
                f"at its log"
            ) from None


def _reason(error: grpc.RpcError) -> str:
    """Return the reason that a switch gives for a failure: of the first update that failed, where it names one."""
    details = dict(error.trailing_metadata() or ()).get("grpc-status-details-bin")
    if isinstance(details, bytes):
        with suppress(DecodeError):  # what is no message tells nothing
            for one in rpc_status.Status.FromString(details).details:
                detail = p4r.Error()
                if one.Unpack(detail) and detail.canonical_code != rpc_code.OK:
                    return re.sub(r"\s+", " ", detail.message) or f"code {detail.canonical_code}"
    return re.sub(r"\s+", " ", error.details() or "")


def tag_of(sha256: str) -> int:
    """Return the tag of a model by its hash: the first 32 bits, never 0."""
    return int(sha256[:TAG_DIGITS], 16) or 1


@dataclass(frozen=True)
class Bank:
    """The tables of one bank, by their ids."""

    tables: tuple[int, ...]  #: that hold a model's rows
    decide: int  #: table whose default action has tau
    set_tau: int  #: that action
    tau_bits: int


@dataclass(frozen=True)
class Live:
    """Which bank decides, and what the banks hold."""

    bank: int  #: 0 or 1
    tags: tuple[int, int]  #: 0: empty, or being filled

    @property
    def other(self) -> int:
        """The bank that does not decide."""
        return 1 - self.bank


@dataclass(frozen=True)
class Decisions:
    """Packets by what both banks said, since the other bank was filled."""

    both_accept: int
    other_drops: int  #: and the live one accepts
    live_drops: int  #: and the other one accepts
    both_drop: int

    @property
    def packets(self) -> int:
        """All of them."""
        return self.both_accept + self.other_drops + self.live_drops + self.both_drop


@dataclass(frozen=True)
class BankedProgram:
    """The program of a switch, as far as banks are concerned."""

    frame: Frame
    banks: tuple[Bank, Bank]
    live: int  #: table whose default action says which bank is live
    set_live: int
    decisions: int  #: counter

    @classmethod
    def of(cls, info: p4i.P4Info, control: str = CONTROL) -> BankedProgram:
        """Find the banks of `control` in a program; ForetailError when it has none, or other ones."""
        by_name = {table.preamble.name: table for table in info.tables}
        numbered = first_id(f"{control} banks")
        names = [
            name
            for name, table in by_name.items()
            if name.rpartition(".")[2] == "live" and table.preamble.id & 0xFFFFFF == numbered
        ]
        if len(names) != 1:
            raise ForetailError(
                f"the switch runs another program, without banks of {control}: build {control}'s program into it "
                f"(docs/guide/export.md), or put it onto the switch (program=true), which forgets what it has"
            )
        prefix = names[0].removesuffix("live")
        actions = {action.preamble.name: action for action in info.actions}
        counters = {counter.preamble.name: counter for counter in info.counters}
        try:
            sides = [
                _bank(f"{prefix}bank_{side}.", first_id(name), info.tables, actions)
                for side, name in zip(BANKS, bank_controls(control), strict=True)
            ]
            frames = [frame for frame, _ in sides]
            if frames[0] != frames[1]:
                raise KeyError("banks of different sizes")
            return cls(
                frames[0],
                (sides[0][1], sides[1][1]),
                by_name[f"{prefix}live"].preamble.id,
                actions[f"{prefix}set_live"].preamble.id,
                counters[f"{prefix}decisions"].preamble.id,
            )
        except (KeyError, IndexError) as error:
            raise ForetailError(
                f"the banks of {control} in the switch's program are not those that Foretail writes ({error}): export "
                f"them again and build them into it"
            ) from None


def _bank(
    prefix: str, first: int, tables: Iterable[p4i.Table], actions: Mapping[str, p4i.Action]
) -> tuple[Frame, Bank]:
    own = sorted((table for table in tables if table.preamble.name.startswith(prefix)), key=lambda t: t.preamble.id)
    features: dict[str, str] = {}
    filled: list[p4i.Table] = []
    trees = words = 0
    for table in own:
        name = table.preamble.name.removeprefix(prefix)
        if name.startswith("t_"):
            features[name.removeprefix("t_")] = table.preamble.doc.description
            words = len(actions[f"{prefix}code_{name.removeprefix('t_')}"].params)
        elif name.startswith("tree_"):
            trees += 1
        else:
            continue
        if table.preamble.id & 0xFFFFFF != first + len(filled):
            raise KeyError(f"the id of {table.preamble.name}")
        filled.append(table)
    keys = [table.match_fields[0].bitwidth for table in filled]
    if not features or not trees or keys != [24] * len(features) + [len(features) * words * WORD_BITS] * trees:
        raise KeyError(f"the keys of {prefix}")
    rows = {table.size for table in filled}
    set_tau = actions[f"{prefix}set_tau"]
    if len(set_tau.params) != 1 or set_tau.params[0].bitwidth < 1:
        raise KeyError(f"the parameter of {prefix}set_tau")
    decide = {table.preamble.name: table.preamble.id for table in own}[f"{prefix}decide"]
    frame = Frame(features, trees, words, min(rows))
    bank = Bank(
        tuple(table.preamble.id for table in filled),
        decide,
        set_tau.preamble.id,
        set_tau.params[0].bitwidth,
    )
    return frame, bank


@dataclass(frozen=True)
class BankedSwitch:
    """A switch with banks: reads and writes what they hold."""

    switch: P4RuntimeSwitch
    program: BankedProgram
    #: how long a packet may stay between reading the number of the bank and its last table; a bank that was live is
    #: not touched before
    drain_seconds: float = 0.1
    report: Callable[[str], None] = lambda _: None  #: takes a sentence for every step

    def live(self) -> Live:
        """Return which bank decides, and the tags of both."""
        bank, first, second = self._default(self.program.live, 3)
        if bank not in (0, 1):
            raise ForetailError(
                f"the switch at {self.switch.address} says that bank {bank} decides, and has 0 and 1: restart it, "
                "or deploy to another"
            )
        return Live(bank, (first, second))

    def tau(self, bank: int) -> int:
        """Return the threshold of a bank."""
        own = self.program.banks[bank]
        (value,) = self._default(own.decide, 1)
        return value - (1 << own.tau_bits) if value >> (own.tau_bits - 1) else value

    def decisions(self) -> Decisions:
        """Return what both banks said about packets."""
        cells = {}
        for entity in self.switch.read(p4r.Entity(counter_entry=p4r.CounterEntry(counter_id=self.program.decisions))):
            cells[entity.counter_entry.index.index] = entity.counter_entry.data.packet_count
        return Decisions(*(int(cells.get(index, 0)) for index in range(4)))

    def rows(self, bank: int) -> list[p4r.TableEntry]:
        """Return all entries of a bank."""
        tables = [p4r.Entity(table_entry=p4r.TableEntry(table_id=table)) for table in self.program.banks[bank].tables]
        return [entity.table_entry for entity in self.switch.read(*tables) if not entity.table_entry.is_default_action]

    def holds(self, bank: int, entries: str, tag: int) -> bool:
        """Return whether a bank holds exactly these rows, under this tag; parameters of :meth:`fill`."""
        return self.live().tags[bank] == tag and _normal(self.rows(bank)) == _normal(_sent(entries))

    def fill(self, bank: int, entries: str, tau: int, tag: int) -> bool:
        """Put a model into the bank that does not decide; return False when it was there, whole and with this tau.

        ForetailError when the switch does not hold afterwards what it was sent; the live bank has not been touched.

        Parameters
        ----------
        entries : P4Runtime updates in text form, ``<name>.entries.txtpb`` of an export for this bank
        tau : threshold
        tag : of the model, see :func:`tag_of`
        """
        now = self.live()
        if bank == now.bank:
            raise ForetailError("the bank that decides is not to be written: report this as a bug")
        if self.holds(bank, entries, tag) and self.tau(bank) == tau:
            return False
        self._set_live(now.bank, _with(now.tags, bank, 0))
        time.sleep(self.drain_seconds)
        wanted, old = _sent(entries), self.rows(bank)
        if _normal(old) != _normal(wanted):
            for kind, entries_of_kind in ((p4r.Update.DELETE, old), (p4r.Update.INSERT, wanted)):
                self.switch.write(p4r.Update(type=kind, entity=p4r.Entity(table_entry=e)) for e in entries_of_kind)
            self.report(f"bank {BANKS[bank]}: {len(old)} rows removed, {len(wanted)} written")
        self.set_tau(bank, tau)
        if _normal(self.rows(bank)) != _normal(wanted) or self.tau(bank) != tau:
            raise ForetailError(
                f"bank {BANKS[bank]} of the switch at {self.switch.address} does not hold the rows that it was sent; "
                f"bank {BANKS[now.bank]} still decides: deploy again, and see that nobody else writes its tables"
            )
        self._set_live(now.bank, _with(now.tags, bank, tag))
        self.reset_decisions()
        return True

    def flip(self) -> None:
        """Make the other bank the live one, by one write; ForetailError when it contains no whole model."""
        now = self.live()
        if not now.tags[now.other]:
            raise ForetailError(
                f"bank {BANKS[now.other]} of the switch at {self.switch.address} contains no whole model: "
                "deploy one first"
            )
        self.reset_decisions()  # before, so that nothing can fail once the other bank decides
        self._set_live(now.other, now.tags)
        after = self.live()
        if after != Live(now.other, now.tags):
            raise ForetailError(
                f"the switch at {self.switch.address} took the write of the live bank {BANKS[now.other]}, and bank "
                f"{BANKS[after.bank]} decides: deploy again, and see that nobody else writes its tables"
            )
        self.report(f"bank {BANKS[now.other]} decides")

    def set_tau(self, bank: int, tau: int) -> None:
        """Turn the threshold of a bank, by one write."""
        own = self.program.banks[bank]
        if not -(1 << (own.tau_bits - 1)) <= tau < 1 << (own.tau_bits - 1):
            raise ForetailError(f"tau {tau} does not fit the {own.tau_bits} bits of the switch's program: take another")
        self._set_default(own.decide, own.set_tau, [tau & ((1 << own.tau_bits) - 1)])

    def reset_decisions(self) -> None:
        """Begin to count again."""
        zero = p4r.CounterData(packet_count=0)
        self.switch.write(
            p4r.Update(
                type=p4r.Update.MODIFY,
                entity=p4r.Entity(
                    counter_entry=p4r.CounterEntry(
                        counter_id=self.program.decisions, index=p4r.Index(index=index), data=zero
                    )
                ),
            )
            for index in range(4)
        )

    def _set_live(self, bank: int, tags: tuple[int, int]) -> None:
        self._set_default(self.program.live, self.program.set_live, [bank, *tags])

    def _default(self, table: int, count: int) -> list[int]:
        """The `count` parameters of the default action of a table."""
        default = p4r.Entity(table_entry=p4r.TableEntry(table_id=table, is_default_action=True))
        for entity in self.switch.read(default):
            params = entity.table_entry.action.action.params
            if params and len(params) != count:
                raise ForetailError(
                    f"the switch at {self.switch.address} gives {len(params)} parameters of the default action of "
                    f"table {table:#x}, which has {count}: restart it, or deploy to another"
                )
            if params:
                return [_number(p.value) for p in sorted(params, key=lambda p: p.param_id)]
        raise ForetailError(
            f"the switch at {self.switch.address} does not tell the default action of table {table:#x}: use one whose "
            f"P4Runtime server reads default actions, as simple_switch_grpc does"
        )

    def _set_default(self, table: int, action: int, values: Sequence[int]) -> None:
        params = [
            p4r.Action.Param(param_id=i, value=value.to_bytes(max(1, -(-value.bit_length() // 8)), "big"))
            for i, value in enumerate(values, 1)
        ]
        entry = p4r.TableEntry(
            table_id=table,
            is_default_action=True,
            action=p4r.TableAction(action=p4r.Action(action_id=action, params=params)),
        )
        self.switch.write([p4r.Update(type=p4r.Update.MODIFY, entity=p4r.Entity(table_entry=entry))])


def _sent(entries: str) -> list[p4r.TableEntry]:
    return [update.entity.table_entry for update in text_format.Parse(entries, p4r.WriteRequest()).updates]


def _with(tags: tuple[int, int], bank: int, tag: int) -> tuple[int, int]:
    return (tag, tags[1]) if bank == 0 else (tags[0], tag)


def _normal(entries: Iterable[p4r.TableEntry]) -> set[tuple[object, ...]]:
    """Return entries with numbers for byte strings, which switches may pad, to be compared."""
    keys: set[tuple[object, ...]] = set()
    for entry in entries:
        matches = sorted(
            (match.field_id, _number(match.ternary.value), _number(match.ternary.mask)) for match in entry.match
        )
        action = entry.action.action
        data = tuple((param.param_id, _number(param.value)) for param in action.params)
        keys.add((entry.table_id, tuple(matches), action.action_id, data, entry.priority))
    return keys


def _number(value: bytes) -> int:
    return int.from_bytes(value, "big")
