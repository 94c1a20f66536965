"""Schedules for other programs: every text says the schedule, and a changed text is refused."""

from __future__ import annotations

import json
import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest

from foretail.core.errors import ForetailError
from foretail.export.c.build import find_compiler
from foretail.export.p4.bmv2 import SimpleSwitch, compile_p4
from foretail.export.schedule import (
    PlannedSchedule,
    c_table,
    read_c_table,
    read_json,
    read_tor_entries,
    render_schedule,
    tor_entries,
)
from foretail.sim_bridge.circuits.demand import ring
from foretail.sim_bridge.circuits.schedules import IDLE, Schedule, vermilion
from tests.export.p4.bmv2 import needs_p4_tools
from tests.refusals import refusing


def planned(nodes: int = 6, degree: int = 2, k: int = 4) -> PlannedSchedule:
    return PlannedSchedule(vermilion(ring(nodes, degree), degree, k), k, 1, 0.75, 0.8)


@pytest.mark.parametrize(("nodes", "degree", "k"), [(2, 1, 1), (2, 2, 1), (6, 2, 4), (5, 1, 3), (8, 4, 10)])
def test_every_output_reads_back_as_the_schedule(nodes: int, degree: int, k: int) -> None:
    made = planned(nodes, degree, k)
    files = render_schedule(made, ["json", "c", "p4"])
    assert len(files) == 2 + nodes
    assert np.array_equal(read_json(files["schedule.json"]).matchings, made.schedule.matchings)


CALLER = """
#include <stdio.h>
#include "schedule.h"
int main(void) {
  unsigned slot, uplink, node;
  for (slot = 0; slot < 2 * FORETAIL_SCHEDULE_SLOTS; ++slot)
    for (uplink = 0; uplink < FORETAIL_SCHEDULE_UPLINKS; ++uplink)
      for (node = 0; node < FORETAIL_SCHEDULE_NODES; ++node)
        printf("%d ", foretail_schedule_destination(slot + 7ull * FORETAIL_SCHEDULE_SLOTS, uplink, node));
  return 0;
}
"""


@pytest.mark.parametrize("language", ["c", "c++"])
def test_the_c_table_compiles_without_a_warning_and_says_the_schedule(language: str, tmp_path: Path) -> None:
    schedule = planned().schedule
    (tmp_path / "schedule.h").write_text(c_table(schedule))
    (tmp_path / "caller.c").write_text(CALLER)
    standard = "c99" if language == "c" else "c++11"
    command = [*(find_compiler() if language == "c" else ["c++"]), "-x", language, f"-std={standard}", "-O1", "-Werror"]
    warnings = ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Wsign-compare"]
    subprocess.run([*command, *warnings, "-o", tmp_path / "caller", tmp_path / "caller.c"], check=True)
    printed = subprocess.run([tmp_path / "caller"], check=True, capture_output=True, text=True).stdout
    read = np.array(printed.split(), int).reshape(2, *schedule.matchings.shape)
    assert np.array_equal(read[0], schedule.matchings)
    assert np.array_equal(read[1], schedule.matchings)


def test_a_changed_c_table_is_noticed() -> None:
    schedule = Schedule(np.array([[[1, IDLE, IDLE]], [[IDLE, 2, 0]]]))
    text = c_table(schedule)
    assert np.array_equal(read_c_table(text).matchings, schedule.matchings)
    changed = read_c_table(text.replace("{1, -1, -1}", "{2, -1, -1}"))
    assert not np.array_equal(changed.matchings, schedule.matchings)
    with pytest.raises(ForetailError, match="does not repeat"):
        read_c_table(text.replace("[slot % FORETAIL_SCHEDULE_SLOTS]", "[slot >= 2 ? 0 : slot]"))


def test_p4_entries_lead_every_packet_to_its_circuit() -> None:
    schedule = planned(8, 4, 6).schedule
    texts = tor_entries(schedule, first_port=10)
    for rack, text in enumerate(texts):
        assert f"#define CIRCUIT_RACK {rack}\n" in text
        for slot, uplinks in enumerate(schedule.matchings[:, :, rack].tolist()):
            for destination in set(uplinks) - {IDLE}:
                ports = [10 + uplink for uplink, reached in enumerate(uplinks) if reached == destination]
                for lane, port in enumerate(ports):
                    assert f" ({slot}, {destination}, {lane}) : send({port});\n" in text
    assert any("CIRCUIT_LANES 4" in text for text in texts)  # parallel circuits of the ring
    assert np.array_equal(read_tor_entries(texts).matchings, schedule.matchings)


SWITCH = """#include <core.p4>
#include <v1model.p4>
#include "rack.p4"
header asked_t { bit<32> slot; bit<16> destination; bit<16> lane; bit<7> free; bit<9> port; bit<7> more; bit<1> up; }
struct headers { asked_t asked; }
struct nothing {}
parser P(packet_in p, out headers h, inout nothing m, inout standard_metadata_t s) {
    state start { p.extract(h.asked); transition accept; }
}
control V(inout headers h, inout nothing m) { apply {} }
control I(inout headers h, inout nothing m, inout standard_metadata_t s) {
    Circuits() circuits;
    apply {
        circuits.apply(h.asked.slot, h.asked.destination, h.asked.lane, h.asked.port, h.asked.up);
        s.egress_spec = 0;
    }
}
control E(inout headers h, inout nothing m, inout standard_metadata_t s) { apply {} }
control D(packet_out p, in headers h) { apply { p.emit(h.asked); } }
V1Switch(P(), V(), I(), E(), V(), D()) main;
"""


@needs_p4_tools
def test_a_switch_finds_the_circuits(tmp_path: Path) -> None:
    schedule, rack, first_port = planned(5, 2, 4).schedule, 1, 3
    text = tor_entries(schedule, first_port)[rack]
    (tmp_path / "rack.p4").write_text(text)
    (tmp_path / "main.p4").write_text(SWITCH)
    asked = [(slot, destination) for slot in range(schedule.period + 1) for destination in range(schedule.nodes)]
    with SimpleSwitch(compile_p4(tmp_path / "main.p4"), tmp_path) as switch:
        answers = switch.exchange([struct.pack(">IHHHB", *key, 0, 0, 0).ljust(64, b"\0") for key in asked])
    seen = 0
    for (slot, destination), answer in zip(asked, answers, strict=True):
        port, up = struct.unpack(">HB", answer[8:11])
        reached = schedule.matchings[slot, :, rack].tolist() if slot < schedule.period else []
        assert up == (destination in reached)
        if up:
            assert port == first_port + reached.index(destination)
            seen += 1
    assert 0 < seen < len(asked)


def changed_json(name: str, *value: object) -> object:
    document = json.loads(render_schedule(planned(), ["json"])["schedule.json"])
    del document[name]
    return read_json(json.dumps(document | dict.fromkeys([name] * len(value), *value)))


def changed_p4(before: str, after: str) -> object:
    first, *others = tor_entries(Schedule(np.array([[[1, 2, 0]], [[2, 0, 1]]])), 0)
    assert before in first
    return read_tor_entries([first.replace(before, after), *others])


SENT = "(0, 1, 0) : send(0);"
test_what_cannot_be_is_refused = refusing(
    (lambda: changed_json("n", 7), "says it has shape"),
    (lambda: changed_json("period_slots", 11), "says it has shape"),
    (lambda: changed_json("slots", []), "matchings or slots have not"),
    (lambda: changed_json("matchings", [[[0, 1]]]), "from a node to itself"),
    (lambda: changed_json("matchings", [["a"]]), "cannot be read from JSON"),
    (lambda: changed_json("slots", [[[0, 1]]] * 12), "slot 0 of a schedule in JSON lists other circuits"),
    *((lambda name=name: changed_json(name), "cannot be read from JSON") for name in ("n", "slots", "matchings")),
    (lambda: changed_p4(SENT, "(0, 1, 0) : send(1);"), "a slot, rack or port out of range"),
    (lambda: changed_p4(SENT, "(9, 1, 0) : send(0);"), "a slot, rack or port out of range"),
    (lambda: changed_p4(SENT, f"(0, {2**31}, 0) : send(0);"), "a slot, rack or port out of range"),
    (lambda: changed_p4(SENT, f"(0, {'9' * 5000}, 0) : send(0);"), "holds the line"),
    (lambda: changed_p4(SENT, "(1, 2, 0) : send(0);"), "repeats an entry"),
    (lambda: changed_p4("(1, 2, 0) : send(0);", "(0, 2, 0) : send(0);"), "sends two ways through port 0"),
    (lambda: changed_p4(SENT, "(0, 1, 0) : wait();"), "holds the line"),
    (lambda: changed_p4(SENT, "(0, 0, 0) : send(0);"), "from a node to itself"),
    (lambda: changed_p4("up = 0;", "up = 1;"), "is not as Foretail writes it"),
    (lambda: changed_p4("#define CIRCUIT_LANES 1\n", ""), "is not as Foretail writes it"),
    (lambda: changed_p4("CIRCUIT_LANES 1\n", "CIRCUIT_LANES 2\n"), "or lacks one"),
    (lambda: changed_p4("CIRCUIT_LANES 1\n", f"CIRCUIT_LANES {10**12}\n"), "or lacks one"),
    (lambda: changed_p4("CIRCUIT_SLOTS 2\n", "CIRCUIT_SLOTS 3\n"), "different periods"),
    (lambda: changed_p4("CIRCUIT_SLOTS 2\n", f"CIRCUIT_SLOTS {10**12}\n"), "too many to read back"),
    (lambda: tor_entries(Schedule(np.array([[[1, 0, IDLE]]])), 0), "rack 2 has no circuit"),
    (lambda: tor_entries(planned().schedule, 510), "need egress ports up to 511"),
)
