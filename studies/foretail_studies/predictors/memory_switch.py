"""A switch with banks in memory: what a control plane writes, and the decisions of the program by exactly that."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from finsy.proto import p4r

from foretail.core.errors import ForetailError
from foretail.export.p4.banks import bank_controls
from foretail.export.p4.encoding import WORD_BITS, Frame
from foretail.export.p4.runtime import Bank, BankedProgram, P4RuntimeSwitch
from foretail.export.p4.text import CONTROL, TABLE_PREFIX, first_id

_SCORE_BITS = 64


class MemorySwitch(P4RuntimeSwitch):
    """The tables of a program with banks for a frame, without a connection, under the updates of P4Runtime.

    ForetailError when an update inserts an entry that is there, or removes one that is not.
    """

    def __init__(self, frame: Frame, control: str = CONTROL) -> None:
        super().__init__("memory")
        count = len(frame.features) + frame.trees
        first, second = (
            Bank(tuple(range(number, number + count)), number + count, 1, _SCORE_BITS)
            for number in (TABLE_PREFIX | first_id(name) for name in bank_controls(control))
        )
        self.banked = BankedProgram(frame, (first, second), TABLE_PREFIX | first_id(f"{control} banks"), 1, 1)
        self.written_bytes = 0  #: of all updates, as they go over a connection
        self._entries: dict[int, dict[bytes, p4r.TableEntry]] = {}
        self._defaults: dict[int, p4r.TableEntry] = {}
        for table, parameters in ((self.banked.live, 3), (first.decide, 1), (second.decide, 1)):
            default = p4r.TableEntry(table_id=table, is_default_action=True)
            for number in range(1, parameters + 1):
                default.action.action.params.add(param_id=number, value=b"\0")
            self._defaults[table] = default

    def write(self, updates: Iterable[p4r.Update]) -> None:
        """Carry out updates, in order; counters are not kept."""
        for update in updates:
            self.written_bytes += update.ByteSize()
            entry = update.entity.table_entry
            if update.entity.HasField("counter_entry"):
                continue
            if entry.is_default_action:
                self._defaults[entry.table_id] = entry
                continue
            entries = self._entries.setdefault(entry.table_id, {})
            key = b"".join(match.SerializeToString() for match in entry.match) + entry.priority.to_bytes(4, "big")
            if (update.type == p4r.Update.INSERT) == (key in entries):
                raise ForetailError("an entry is there already, or is not: report this as a bug")
            if update.type == p4r.Update.INSERT:
                entries[key] = entry
            else:
                del entries[key]

    def read(self, *entities: p4r.Entity) -> list[p4r.Entity]:
        """Return the default action or the entries of tables."""
        entries: list[p4r.TableEntry] = []
        for one in (entity.table_entry for entity in entities):
            is_default, table = one.is_default_action, one.table_id
            entries += [self._defaults[table]] if is_default else self._entries.get(table, {}).values()
        return [p4r.Entity(table_entry=entry) for entry in entries]

    def drops(self, x: Sequence[int]) -> bool:
        """Decide a packet by its features, in the order of the frame, as the bank does that is live."""
        live, *tags = _data(self._defaults[self.banked.live])
        bank, key, count = self.banked.banks[live], 0, len(x)
        for table, value in zip(bank.tables[:count], x, strict=True):
            for word in reversed(self._looked_up(table, value)):
                key = key << WORD_BITS | word
        votes = sum(self._looked_up(table, key)[0] for table in bank.tables[count:])
        score, tau = (_signed(value) for value in (votes, *_data(self._defaults[bank.decide])))
        return tags[live] != 0 and score > tau

    def _looked_up(self, table: int, key: int) -> list[int]:
        """The data of the entry of the highest priority that matches; 0 where none does."""
        matching = [
            entry
            for entry in self._entries.get(table, {}).values()
            if all(key & _number(one.ternary.mask) == _number(one.ternary.value) for one in entry.match)
        ]
        if not matching:
            return [0] * self.banked.frame.words
        return _data(max(matching, key=lambda entry: entry.priority))


def _number(value: bytes) -> int:
    return int.from_bytes(value, "big")


def _data(entry: p4r.TableEntry) -> list[int]:
    return [_number(param.value) for param in sorted(entry.action.action.params, key=lambda param: param.param_id)]


def _signed(value: int) -> int:
    half = 1 << (_SCORE_BITS - 1)
    return (value + half) % (2 * half) - half
