"""The switch in memory against models, and against what a switch in this process says of its program. One second."""

from __future__ import annotations

from pathlib import Path

import pytest
from finsy.proto import p4r

from foretail.core.errors import ForetailError
from foretail.export.p4.banks import over
from foretail.export.p4.encoding import Frame
from foretail.export.p4.runtime import BANKS, BankedProgram, BankedSwitch, tag_of
from foretail.export.p4.target import P4
from foretail.export.target import export
from foretail_studies.predictors.memory_switch import MemorySwitch
from tests.export.p4.p4_texts import everything, small_ensemble
from tests.export.p4.runtime.p4runtime import info_of

FRAME = Frame({"queue": "", "table": ""}, 4, 1, 64)


def test_its_tables_decide_as_the_models_that_take_turns(tmp_path: Path) -> None:
    memory = MemorySwitch(FRAME)
    switch = BankedSwitch(memory, memory.banked, drain_seconds=0)
    assert not memory.drops([1, 1])
    for stumps in (1, 2, 3):
        model, bank = small_ensemble(stumps), switch.live().other
        done = export(over(model, FRAME), P4(frame=FRAME, bank=BANKS[bank]), tmp_path / str(stumps))
        tau = done.ensemble.require_votes()[1]
        assert switch.fill(bank, done.file(".entries.txtpb").read_text(), tau, tag_of(model.sha256))
        switch.flip()
        rows = everything(model)
        expected = [score > model.require_votes()[1] for score in model.score(rows).tolist()]
        places = [[one.name for one in model.features].index(name) for name in FRAME.features]
        assert [memory.drops(row) for row in rows[:, places].tolist()] == expected


def test_its_tables_are_those_of_the_exported_program(tmp_path: Path) -> None:
    program, own = BankedProgram.of(info_of(small_ensemble(), FRAME, tmp_path)), MemorySwitch(FRAME).banked
    assert [bank.tables for bank in own.banks] == [bank.tables for bank in program.banks]
    assert (own.frame, own.live) == (program.frame, program.live)


def test_an_entry_that_is_not_there_is_not_removed() -> None:
    entity = p4r.Entity(table_entry=p4r.TableEntry(table_id=1))
    with pytest.raises(ForetailError, match="an entry is there already, or is not: report this as a bug"):
        MemorySwitch(FRAME).write([p4r.Update(type=p4r.Update.DELETE, entity=entity)])
