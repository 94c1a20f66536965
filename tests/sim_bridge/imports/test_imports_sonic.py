"""SONiC configurations: read, refused in one sentence, written back, simulated, and given other thresholds.

It takes a second, half of it for drawn configurations. ``sonic/`` has two of our own making.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretail.core.errors import ForetailError
from foretail.sim_bridge.imports.sonic import config as sonic_config
from foretail.sim_bridge.imports.sonic.checks import headroom_bytes_needed
from foretail.sim_bridge.imports.sonic.config import (
    config_text,
    parse_config,
    read_config,
    write_config,
)
from foretail.sim_bridge.imports.sonic.simulated import SimulatedMarks, simulated
from foretail.sim_bridge.imports.sonic.tables import Pool, Profile, SonicBuffers
from foretail.sim_bridge.imports.sonic.thresholds import with_alphas
from tests.examples import draws
from tests.refusals import refusing

SAMPLES = Path(__file__).parent / "sonic"
LEAF, LOSSY = (json.loads((SAMPLES / name).read_text()) for name in ("leaf_32x100g.json", "lossy.json"))
ONE_LOSSLESS = {"background": 0, "incast": 3, "control": 0}


def of(document: Any) -> SonicBuffers:
    return parse_config(json.dumps(document).encode())


def leaf_of(*ports: str, **tables: Any) -> dict[str, Any]:
    """The leaf with these ports alone, and other tables in the place of its own."""
    names = ",".join(ports)
    document: dict[str, Any] = deepcopy(LEAF)
    every = ",".join(document["PORT"])
    for table in ("PORT", "BUFFER_PG", "BUFFER_QUEUE", "PORT_QOS_MAP"):
        document[table] = {
            key.replace(every, names): row for key, row in document[table].items() if table != "PORT" or key in ports
        }
    document["CABLE_LENGTH"]["AZURE"] = dict.fromkeys(ports, "10m")
    return document | tables


def test_a_leaf_is_read() -> None:
    buffers = read_config(SAMPLES / "leaf_32x100g.json")
    assert buffers.pools["ingress_lossless_pool"] == Pool(True, True, 26_000_000, 4_000_000)
    assert buffers.profiles["egress_lossy_profile"] == Profile("egress_lossy_pool", 1536, dynamic_th=1)
    port = buffers.ports["Ethernet124"]
    assert (port.speed_bps, port.cable_m, port.up, port.pfc_priorities) == (100 * 10**9, 10, True, (3, 4))
    assert port.groups == {0: "ingress_lossy_profile", 3: LOSSLESS, 4: LOSSLESS}
    assert {queue for queue, profile in port.queues.items() if profile == "egress_lossless_profile"} == {3, 4}
    assert (port.group_of_class[6], port.queue_of_class[6], port.class_of_dscp[26]) == (0, 6, 3)
    assert buffers.lossless_priorities("Ethernet124") == (3, 4)
    assert buffers.lossless_queues("Ethernet124") == {3, 4}
    buffers.require_fits(30_000_000)
    with pytest.raises(ForetailError, match=r"egress_lossless_pool has size 30,000,000, and the buffer 29,999,999"):
        buffers.require_fits(29_999_999)


def test_a_leaf_is_simulated() -> None:
    settings_of_leaf = simulated(of(LEAF), ONE_LOSSLESS).settings()
    assert settings_of_leaf == {
        "scenario": {
            "queues": {"count": 2, "lossless": [1], "background": 0, "incast": 1, "control": 0, "marking": []},
            "pfc": {
                "headroom_bytes": 96_000,
                "headroom_pool_bytes": 4_000_000,
                "xon_bytes": 2560,
                "xon_offset_bytes": 2304,
            },
        },
        "policy": {
            "name": "sonic",
            "ingress_pool_bytes": 26_000_000,
            "egress_lossless_pool_bytes": 30_000_000,
            "egress_lossy_pool_bytes": 20_800_000,
            "ingress_alphas": [8.0, 0.5],
            "egress_alphas": [2.0, 0.0],
            "ingress_static_bytes": [0, 0],
            "egress_static_bytes": [0, 30_000_000],
            "ingress_reserved_bytes": [0, 1280],
            "egress_reserved_bytes": [1536, 0],
        },
    }


def test_a_lossy_switch_is_simulated_with_ports_of_two_speeds() -> None:
    buffers = read_config(SAMPLES / "lossy.json")
    assert buffers.in_brackets
    result = simulated(buffers, {"background": 1, "incast": 1, "control": 7})
    assert (result.queues.lossless, result.pfc.headroom_pool_bytes, result.priorities) == ([], 0, (1, 7))
    assert (result.policy.egress_lossless_pool_bytes, result.policy.egress_alphas) == (0, [8.0, 8.0])


def test_headroom_of_its_own_is_that_of_all_groups() -> None:
    document = leaf_of("Ethernet0", "Ethernet4")
    del document["BUFFER_POOL"]["ingress_lossless_pool"]["xoff"]
    document["BUFFER_PROFILE"]["pg_lossless_100000_10m_profile"]["size"] = "98560"  # its xon, and its headroom
    result = simulated(of(document), ONE_LOSSLESS)
    assert (result.pfc.headroom_bytes, result.pfc.headroom_pool_bytes) == (96_000, 2 * 96_000)
    assert result.policy.ingress_reserved_bytes == [0, 2560]


@pytest.mark.parametrize(
    ("speed_bps", "cable_m", "mtu_bytes", "needed"),
    [
        (100 * 10**9, 0, 1500, 3000 + 3904),
        (100 * 10**9, 300, 1500, 37_500 + 3000 + 3904),
        (10 * 10**9, 1, 9100, 13 + 18_200 + 3904),  # 12.5 bytes are on a metre
    ],
)
def test_headroom_is_what_a_cable_needs(speed_bps: int, cable_m: int, mtu_bytes: int, needed: int) -> None:
    assert headroom_bytes_needed(speed_bps, cable_m, mtu_bytes) == needed


def changed(table: str, key: str, field: str | None, value: Any) -> Callable[[dict[str, Any]], None]:
    """A change of a row, of one of its fields, or without it (None)."""

    def change(document: dict[str, Any]) -> None:
        rows = document.setdefault(table, {})
        row, name = (rows, key) if field is None else (rows[key], field)
        if value is None:
            del row[name]
        else:
            row[name] = value

    return change


POOL, PROFILE = "egress_lossy_pool", "egress_lossy_profile"
LOSSLESS = "pg_lossless_100000_10m_profile"
MALFORMED = [
    (changed("BUFFER_POOL", POOL, "size", 7.5), "BUFFER_POOL|egress_lossy_pool has no string as its size"),
    (changed("BUFFER_POOL", POOL, "size", True), "has no string as its size: write the value in quotes"),
    (changed("BUFFER_POOL", POOL, "size", ["1"]), "has no string as its size"),
    (changed("BUFFER_POOL", POOL, "size", "-1"), "has size = '-1', where a whole number from 0 to"),
    (changed("BUFFER_POOL", POOL, "size", 10**4000), "has size = 1000"),
    (changed("BUFFER_POOL", POOL, "size", "٣"), "where a whole number from 0 to"),
    (changed("BUFFER_POOL", POOL, "size", None), "has no size: the dynamic buffer model leaves it to the switch"),
    (changed("BUFFER_POOL", POOL, "type", "both"), "has type = 'both', where ingress or egress is needed"),
    (changed("BUFFER_POOL", POOL, "mode", None), "has no mode: write dynamic or static"),
    (
        changed("BUFFER_POOL", POOL, "colour", "red"),
        "has the field colour, and BUFFER_POOL only type, mode, size, xoff",
    ),
    (changed("BUFFER_POOL", POOL, None, "9"), "BUFFER_POOL|egress_lossy_pool is no object"),
    (changed("BUFFER_POOL", "a|b", None, {}), "BUFFER_POOL names a row 'a|b'"),
    (changed("BUFFER_PROFILE", PROFILE, "pool", "mine"), "draws on mine, which is no row of BUFFER_POOL: name one of"),
    (changed("BUFFER_PROFILE", PROFILE, "pool", f"[BUFFER_PROFILE|{PROFILE}]"), "which is no row of BUFFER_POOL"),
    (changed("BUFFER_PROFILE", PROFILE, "pool", None), "has no pool"),
    (changed("BUFFER_PROFILE", PROFILE, "static_th", "9"), "has both dynamic_th and static_th: give it one of them"),
    (changed("BUFFER_PROFILE", PROFILE, "dynamic_th", None), "has neither dynamic_th nor static_th"),
    (changed("BUFFER_PROFILE", PROFILE, "dynamic_th", "8"), "where a whole number from -8 to 7 is needed"),
    (changed("BUFFER_PROFILE", PROFILE, "dynamic_th", -9), "has dynamic_th = -9, where"),
    (changed("BUFFER_PROFILE", PROFILE, "headroom_type", "dynamic"), "the dynamic buffer model leaves it"),
    (changed("BUFFER_PROFILE", LOSSLESS, "xoff", "8000"), "Ethernet0 at 100,000 Mbit/s over 10 m needs 8,154, which"),
    (
        changed("BUFFER_PG", "Ethernet0|4-5", None, {"profile": LOSSLESS}),
        "second row for priority group 4 of Ethernet0",
    ),
    (changed("BUFFER_PG", "Ethernet0|8", None, {"profile": LOSSLESS}), "is for no ports and numbers"),
    (changed("BUFFER_PG", "Ethernet0|2-1", None, {"profile": LOSSLESS}), "write PORT|LOW-HIGH with numbers to 7"),
    (changed("BUFFER_PG", "Ethernet0", None, {"profile": LOSSLESS}), "is for no ports and numbers"),
    (changed("BUFFER_PG", "Ethernet3|1", None, {"profile": LOSSLESS}), "is for Ethernet3, which is no PORT"),
    (changed("BUFFER_PG", "Ethernet0|1", None, {"profile": "NULL"}), "has the profile NULL: the dynamic buffer model"),
    (changed("BUFFER_PG", "Ethernet0|1", None, {"profile": "mine"}), "has mine, which is no row of BUFFER_PROFILE"),
    (changed("BUFFER_PG", "Ethernet0|1", None, {"profile": PROFILE}), "draws on egress_lossy_pool, no ingress pool"),
    (changed("BUFFER_PG", "Ethernet0|1", None, {"profile": LOSSLESS}), "has the lossless profile"),
    (changed("BUFFER_PG", "Ethernet0|1", None, {}), "BUFFER_PG|Ethernet0|1 has no profile"),
    (changed("BUFFER_QUEUE", "Ethernet0|6-16", None, {"profile": PROFILE}), "with numbers to 15"),
    (changed("BUFFER_QUEUE", "Ethernet0|7", None, {"profile": LOSSLESS}), "no egress pool"),
    (changed("PORT", "Ethernet0", "speed", None), "PORT|Ethernet0 has no speed: add it, in Mbit/s"),
    (changed("PORT", "Ethernet0", "speed", "0"), "has speed = '0'"),
    (changed("PORT", "Ethernet0", "speed", "10"), "has speed = '10', where a whole number from 100 to"),
    (changed("BUFFER_POOL", POOL, "size", "0"), "has size 0, less than 4 packets for each of its 1 ports: give it in"),
    (changed("BUFFER_POOL", POOL, "size", "5999"), "give it in bytes, 6,000 or more"),
    (changed("BUFFER_POOL", "ingress_lossless_pool", "xoff", "1"), "has xoff 1 for the headroom of all groups, and"),
    (changed("PORT", "Ethernet0", "admin_status", "sideways"), "where up or down is needed"),
    (changed("PORT", "", None, {"speed": "1"}), "PORT names a port ''"),
    (changed("CABLE_LENGTH", "AZURE", "Ethernet1", "5m"), "CABLE_LENGTH|AZURE is for Ethernet1, which is no PORT"),
    (changed("CABLE_LENGTH", "AZURE", "Ethernet0", "5"), "where metres such as 5m are needed"),
    (changed("CABLE_LENGTH", "AZURE", "Ethernet0", None), "has the lossless priority group 3 and no CABLE_LENGTH"),
    (changed("CABLE_LENGTH", "HERE", None, {"Ethernet0": "5m"}), "is a second length for Ethernet0"),
    (changed("PORT_QOS_MAP", "Ethernet0", "pfc_enable", "3"), "enables no PFC for it: add the priority to pfc_enable"),
    (changed("PORT_QOS_MAP", "Ethernet0", "pfc_enable", "2,3,4"), "priority 2, whose priority group 2 has no headroom"),
    (changed("PORT_QOS_MAP", "Ethernet0", "pfc_enable", "3,4,8"), "names 8, which is no number from 0 to 7"),
    (changed("PORT_QOS_MAP", "Ethernet0", "pfc_enable", "3,3,4"), "each priority is needed once"),
    (changed("PORT_QOS_MAP", "Ethernet0", "tc_to_pg_map", "X"), "which is no row of TC_TO_PRIORITY_GROUP_MAP: add it"),
    (changed("PORT_QOS_MAP", "Ethernet0,Ethernet0", None, {}), "is a second row for Ethernet0"),
    (changed("TC_TO_QUEUE_MAP", "MINE", "0", "16"), "TC_TO_QUEUE_MAP|MINE names 16"),
    (changed("DSCP_TO_TC_MAP", "MINE", "64", "0"), "DSCP_TO_TC_MAP|MINE names 64"),
]


@pytest.mark.parametrize(("change", "sentence"), MALFORMED, ids=[sentence for _, sentence in MALFORMED])
def test_a_malformed_row_is_refused_by_name(
    change: Callable[[dict[str, Any]], None], sentence: str, tmp_path: Path
) -> None:
    document = leaf_of("Ethernet0")
    change(document)
    path = tmp_path / "config_db.json"
    path.write_text(json.dumps(document))
    with pytest.raises(ForetailError) as error:
        read_config(path)
    assert sentence in str(error.value)
    assert str(error.value).startswith(f"{path}: ")


def marked(**changed: str) -> dict[str, Any]:
    """A leaf whose lossless queue has a profile of marks, and weights that are not simulated."""
    document = leaf_of("Ethernet0")
    green = {"wred_green_enable": "true", "green_min_threshold": "20000", "green_max_threshold": "60000"}
    profile = {"ecn": "ecn_all", **green, "green_drop_probability": "5"} | changed
    document["WRED_PROFILE"] = {"MARKS": profile, "OTHER": {"ecn": "ecn_none"}}
    document["SCHEDULER"] = {"heavy": {"type": "DWRR", "weight": "15"}}
    document["QUEUE"] = {"Ethernet0|3-4": {"wred_profile": "MARKS", "scheduler": "heavy"}}
    return document


def test_marks_are_simulated_and_other_tables_that_act_on_packets_are_named() -> None:
    document = marked()
    document["PFC_WD"] = {}
    document["POLICER"] = {"SLOW": {"cir": "1000"}}
    document["PORT_QOS_MAP"]["Ethernet0"]["tc_to_dscp_map"] = "AZURE"
    document["BGP_NEIGHBOR"] = {"10.0.0.1": {}}
    result = simulated(of(document), ONE_LOSSLESS)
    assert (result.marks, result.queues.marking) == (SimulatedMarks(20_000, 60_000, 0.05), [1])
    assert result.settings()["scenario"]["transport"]["mark_bytes"] == 20_000
    named = result.reading.sentence()
    for left in ("WRED_PROFILE OTHER", "SCHEDULER", "POLICER", "tc_to_dscp_map of PORT_QOS_MAP", "BGP_NEIGHBOR"):
        assert left in named
    assert "MARKS" not in named
    assert "PFC_WD" not in named


@pytest.mark.parametrize(
    ("changed", "marks"),
    [
        ({"green_drop_probability": "0"}, SimulatedMarks(60_000, 0, 1.0)),
        ({"green_min_threshold": "60000"}, SimulatedMarks(60_000, 0, 1.0)),
        ({"wred_green_enable": "false"}, None),
        ({"ecn": "ecn_none"}, None),
        ({"ecn": "ecn_red"}, None),
    ],
)
def test_a_profile_marks_as_its_fields_say(changed: dict[str, str], marks: SimulatedMarks | None) -> None:
    result = simulated(of(marked(**changed)), ONE_LOSSLESS)
    assert result.marks == marks
    assert ("WRED_PROFILE MARKS" in result.reading.sentence()) == (marks is None)


def test_a_configuration_from_before_the_buffer_manager_is_told() -> None:
    document = leaf_of("Ethernet0")
    document["BUFFER_PG"] = {"Ethernet0|0": {"profile": document["BUFFER_PG"]["Ethernet0|0"]["profile"]}}
    document["PORT_QOS_MAP"] = {}
    result = simulated(of(document), {"background": 0, "incast": 0, "control": 0})
    assert "buffermgrd adds their rows of BUFFER_PG" in result.reading.sentence()
    assert "buffermgrd" not in simulated(of(leaf_of("Ethernet0")), ONE_LOSSLESS).reading.sentence()


def test_a_file_that_is_huge_or_missing_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sonic_config, "LARGEST_FILE_BYTES", 100)
    with pytest.raises(ForetailError, match="it is larger than 100 bytes"):
        read_config(SAMPLES / "lossy.json")
    with pytest.raises(ForetailError, match=r"the SONiC configuration .* cannot be read"):
        read_config(tmp_path / "config_db.json")


def test_a_port_that_is_off_needs_no_headroom_for_pfc() -> None:
    document = leaf_of("Ethernet0", "Ethernet4")
    document["BUFFER_PG"] = {"Ethernet0|3-4": {"profile": LOSSLESS}}
    with pytest.raises(ForetailError, match=r"PORT_QOS_MAP\|Ethernet4 enables PFC for priority 3"):
        of(document)
    document["PORT"]["Ethernet4"]["admin_status"] = "down"
    assert not of(document).ports["Ethernet4"].up


def test_ports_of_one_kind_are_chosen() -> None:
    document = leaf_of("Ethernet0", "Ethernet4", "Ethernet8")
    longer = document["BUFFER_PROFILE"][LOSSLESS] | {"xoff": "120000"}
    document["BUFFER_PROFILE"]["longer"] = longer
    document["BUFFER_PG"] = {
        "Ethernet0,Ethernet4|3-4": {"profile": LOSSLESS},
        "Ethernet8|3-4": {"profile": "longer"},
        "Ethernet0,Ethernet4,Ethernet8|0": {"profile": "ingress_lossy_profile"},
    }
    sentence = "Ethernet0 and Ethernet8 have one speed and different profiles for traffic class 3: give ports="
    with pytest.raises(ForetailError, match=sentence):
        simulated(of(document), ONE_LOSSLESS)
    assert simulated(of(document), ONE_LOSSLESS, ["Ethernet8"]).pfc.headroom_bytes == 120_000
    document["PORT"]["Ethernet8"]["speed"] = "200000"  # may differ in headroom, of which the largest counts
    assert simulated(of(document), ONE_LOSSLESS).pfc.headroom_bytes == 120_000
    document["BUFFER_PROFILE"]["longer"]["dynamic_th"] = "0"
    with pytest.raises(ForetailError, match="differ in more than headroom"):
        simulated(of(document), ONE_LOSSLESS)
    with pytest.raises(ForetailError, match="ports has Ethernet9, which is no PORT"):
        simulated(of(document), ONE_LOSSLESS, ["Ethernet9"])


def test_thresholds_are_those_of_queues_or_of_lossless_groups() -> None:
    before = of(LEAF)
    after = with_alphas(before, {0: 3, 3: -2, 4: -1})
    assert parse_config(config_text(after).encode()) == after
    result = simulated(after, ONE_LOSSLESS).policy
    assert (result.ingress_alphas, result.egress_alphas) == ([8.0, 0.25], [8.0, 0.0])
    port = after.ports["Ethernet0"]
    assert (port.queues[0], port.queues[1], port.groups[4]) == (f"{PROFILE}_th3", PROFILE, LOSSLESS)
    assert with_alphas(before, {0: 1, 3: -1}) == before
    assert before == of(LEAF)
    with pytest.raises(ForetailError, match="traffic class 7 has no profile on any port"):
        with_alphas(before, {7: 1})
    one_queue = deepcopy(LEAF)
    one_queue["TC_TO_QUEUE_MAP"]["MINE"]["1"] = "0"
    assert with_alphas(of(one_queue), {0: 3, 1: 3}).ports["Ethernet0"].queues[0] == f"{PROFILE}_th3"
    with pytest.raises(ForetailError, match="traffic classes 0 and 1 share queue 0 of Ethernet0: give both the same"):
        with_alphas(of(one_queue), {0: 3, 1: 2})


JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=3), st.lists, max_leaves=4)
NAMES = st.text("ab_1", min_size=1, max_size=3)


@st.composite
def configurations(draw: st.DrawFn) -> dict[str, Any]:
    """Documents of some ports with pools, profiles, groups, queues and cables, and tables of something else."""
    written: Callable[[str, str], str] = (
        (lambda table, name: f"[{table}|{name}]") if draw(st.booleans()) else (lambda table, name: name)
    )
    number = st.integers(0, 10**7).map(str)
    pools = {
        f"{side}{place}": draw(
            st.fixed_dictionaries(
                {"type": st.just(side), "mode": st.sampled_from(("static", "dynamic")), "size": number},
                optional={"xoff": number},
            )
        )
        for side in ("ingress", "egress")
        for place in range(draw(st.integers(1, 2)))
    }
    profiles: dict[str, dict[str, str]] = {}
    for name in draw(st.lists(NAMES, min_size=1, max_size=5, unique=True)):
        pool = draw(st.sampled_from(sorted(pools)))
        threshold = draw(st.sampled_from(({"dynamic_th": str(draw(st.integers(-8, 7)))}, {"static_th": draw(number)})))
        headroom = {"xoff": str(draw(st.integers(10**5, 10**6))), "xon": draw(number)} if draw(st.booleans()) else {}
        profiles[name] = {"pool": written("BUFFER_POOL", pool), "size": draw(number)} | threshold | headroom
    ports = [f"Ethernet{4 * place}" for place in range(draw(st.integers(1, 4)))]
    tables: dict[str, dict[str, Any]] = {"BUFFER_PG": {}, "BUFFER_QUEUE": {}}
    paused: dict[str, set[int]] = {port: set() for port in ports}
    for table, side, most in (("BUFFER_PG", "ingress", 8), ("BUFFER_QUEUE", "egress", 16)):
        usable = [name for name, row in profiles.items() if side in row["pool"]]
        low = 0
        while usable and low < most and draw(st.booleans()):
            high = draw(st.integers(low, most - 1))
            own = draw(st.lists(st.sampled_from(ports), min_size=1, unique=True))
            name = draw(st.sampled_from(usable))
            numbers = str(low) if high == low else f"{low}-{high}"
            tables[table][f"{','.join(own)}|{numbers}"] = {"profile": written("BUFFER_PROFILE", name)}
            if table == "BUFFER_PG" and "xoff" in profiles[name]:
                for port in own:
                    paused[port] |= set(range(low, high + 1))
            low = high + 1
    rest = draw(st.dictionaries(NAMES, JSON, max_size=2))
    return rest | {
        "BUFFER_POOL": pools,
        "BUFFER_PROFILE": profiles,
        **tables,
        "PORT": {port: {"speed": draw(st.sampled_from(("25000", "100000"))), "lanes": "1,2"} for port in ports},
        "CABLE_LENGTH": {"AZURE": dict.fromkeys(ports, "40m")},
        "PORT_QOS_MAP": {port: {"pfc_enable": ",".join(map(str, sorted(paused[port])))} for port in ports},
    }


def expanded(table: dict[str, Any]) -> dict[tuple[str, int], str]:
    """The profile of every port and number, slow and obvious."""
    found = {}
    for key, row in table.items():
        ports, numbers = key.split("|")
        low, _, high = numbers.partition("-")
        for port in ports.split(","):
            for number in range(int(low), int(high or low) + 1):
                found[port, number] = row["profile"]
    return found


@given(configurations(), st.randoms())
@settings(max_examples=draws(60))
def test_what_is_written_is_read_again_and_says_the_same(document: dict[str, Any], random: Any) -> None:
    buffers = of(document)
    text = config_text(buffers)
    assert parse_config(text.encode()) == buffers
    again = json.loads(text)
    for table, rows in document.items():
        if table in ("BUFFER_PG", "BUFFER_QUEUE"):
            assert expanded(again.get(table, {})) == expanded(rows)
        else:
            assert again[table] == rows
    shuffled = {table: document[table] for table in random.sample(sorted(document), len(document))}
    assert config_text(of(shuffled)) == text


def test_a_file_is_written_in_sonics_order(tmp_path: Path) -> None:
    write_config(of(LOSSY), tmp_path / "config_db.json")
    assert read_config(tmp_path / "config_db.json") == of(LOSSY)
    again = json.loads((tmp_path / "config_db.json").read_bytes())
    assert list(again) == ["BUFFER_PG", "BUFFER_POOL", "BUFFER_PROFILE", "BUFFER_QUEUE", "DEVICE_METADATA", "PORT"]
    assert list(again["PORT"])[-3:] == ["Ethernet8", "Ethernet12", "Ethernet16"]
    assert again["BUFFER_QUEUE"]["Ethernet12|0-7"] == {"profile": f"[BUFFER_PROFILE|{PROFILE}]"}


def simulated_pair(change: Callable[[dict[str, Any]], None] | None = None, **priorities: int) -> object:
    document = leaf_of("Ethernet0", "Ethernet4")
    if change is not None:
        change(document)
    return simulated(of(document), ONE_LOSSLESS | priorities)


def simulated_marks(**changes: str) -> object:
    return simulated(of(marked(**changes)), ONE_LOSSLESS)


TEXTS = {
    b"": "it is no JSON that can be read",
    b"[]": "it is no object of tables",
    b'{"PORT": [1]}': "PORT is no table",
    b"{}": "PORT has 0 ports",
    b'{"PORT|Ethernet0": {"speed": "10000"}}': r"it has keys such as PORT\|Ethernet0, as the database does: give",
    b'{"PORT": {}, "PORT": {}}': "it has 'PORT' twice in one object",
    b'{"PORT": {"Ethernet0": {"speed": "1", "speed": "2"}}}': "it has 'speed' twice in one object",
    b'{"PORT": {"Ethernet0": {"speed": "1"}}, "MINE": [1e999]}': "the number 1e999 is not finite",
    b'{"\\n\xff": 1}': "it is no JSON that can be read",
}
TRIM = changed("BUFFER_PROFILE", LOSSLESS, "packet_discard_action", "trim")
ONE_POOL = changed("BUFFER_PROFILE", PROFILE, "pool", "egress_lossless_pool")
ONE_PROFILE = changed("BUFFER_QUEUE", "Ethernet0,Ethernet4|3-4", None, {"profile": PROFILE})
test_what_cannot_be_meant_is_refused = refusing(
    *((lambda text=text: parse_config(text), words) for text, words in TEXTS.items()),
    (lambda: with_alphas(of(LOSSY), {0: 8}), "dynamic_th = 8 is none that SONiC takes: choose from -8"),
    (lambda: simulated_marks(green_min_threshold=" 20000"), "has green_min_threshold = ' 20000', where a whole number"),
    (lambda: simulated_marks(green_min_threshold="90000"), "where at most green_max_threshold, 60,000, is needed"),
    (lambda: simulated_marks(green_drop_probability="500"), "a whole number from 0 to 100 is needed"),
    (lambda: simulated_marks(wred_green_enable="yes"), "where true or false is needed"),
    (
        lambda: simulated(of(LEAF), {"background": 0}),
        "priorities are of background: give those of background, incast, ",
    ),
    (lambda: simulated_pair(incast=8), "incast has priority 8: choose from 0 to 7"),
    (lambda: simulated_pair(incast=True), "incast has priority True"),
    (lambda: simulated_pair(incast=7), "traffic class 7 of Ethernet0 has queue 7, which has no row of BUFFER_QUEUE"),
    (lambda: simulated_pair(incast=1), "traffic classes 0 and 1 share priority group 0 of Ethernet0"),
    (lambda: simulated_pair(TRIM), "trims packets"),
    (lambda: simulated_pair(ONE_POOL), "lossless and lossy queues both draw on egress_lossless_pool"),
    (lambda: simulated_pair(ONE_PROFILE), "lossless and lossy queues both draw on egress_lossy_pool"),
)
