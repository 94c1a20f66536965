"""The C++ headers on their own: warnings, assertions, allocations, and the strings that Python must agree with."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import foretail.sim_bridge
from foretail.core.errors import ForetailError
from foretail.features.catalog import FEATURES
from foretail.pipelines import cli
from foretail.sim_bridge.arrivals.files import Slotted
from foretail.sim_bridge.builds import GuestPolicy, native_policy
from foretail.sim_bridge.native.driver import run_native
from foretail.sim_bridge.native.network import NativeNetwork
from foretail.sim_bridge.open_loop.slotted import accept, compare
from foretail.sim_bridge.policies import policy_name
from tests.scenarios import settings

pytestmark = pytest.mark.slow


assert foretail.sim_bridge.__file__


ROOM = Path(foretail.sim_bridge.__file__).parent
HEADERS = sorted(header for room in ("buffer", "circuits") for header in (ROOM / room).rglob("*.h*"))


assert {header.relative_to(ROOM).parts[0] for header in HEADERS} == {"buffer", "circuits"}


PROGRAM = Path(__file__).with_name("buffer_check.cpp")
WARNINGS = ("-Wall", "-Wextra", "-Wpedantic", "-Werror")


def compiler(variable: str, *names: str) -> str:
    """The compiler that built the package is there, so its absence is a failure, not a skip."""
    found = next(filter(None, map(shutil.which, filter(None, (os.environ.get(variable), *names)))), None)
    assert found, f"no compiler among {names}"
    return found


def compiled(program: Path, *sources: Path) -> Path:
    """Compile a program with assertions, and with what $CXXFLAGS adds, such as sanitizers."""
    flags = (*WARNINGS, *shlex.split(os.environ.get("CXXFLAGS", "")), f"-I{ROOM}")
    run(compiler("CXX", "c++", "g++", "clang++"), "-std=c++20", "-O1", *flags, *sources, "-o", program, "-ldl")
    return program


def run(*command: str | Path, source: str = "") -> str:
    done = subprocess.run(command, input=source, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    sources = (PROGRAM, ROOM / "buffer/run.cpp", ROOM / "buffer/policies/policies.cpp")
    return compiled(tmp_path_factory.mktemp("buffer_check") / "buffer_check", *sources)


@pytest.mark.nightly
@pytest.mark.parametrize("header", HEADERS, ids=lambda header: header.name)
def test_a_header_compiles_alone_without_a_warning(header: Path) -> None:
    cxx = compiler("CXX", "c++", "g++", "clang++")
    source = f'#include "{header}"\n'
    run(cxx, "-std=c++20", *WARNINGS, f"-I{ROOM}", "-fsyntax-only", "-x", "c++", "-", source=source)


def test_the_predictor_interface_is_c99() -> None:
    cc = compiler("CC", "cc", "gcc", "clang")
    source = f'#include "{ROOM / "buffer" / "predictor" / "predictor.h"}"\n'
    run(cc, "-std=c99", *WARNINGS, "-fsyntax-only", "-x", "c", "-", source=source)


@pytest.mark.parametrize("check", ["contents", "workload", "allocations"])
def test_the_library_passes_its_own_assertions(program: Path, check: str) -> None:
    assert run(program, check) == ""


@pytest.mark.parametrize(("cell_shift", "average_shift"), [(8, 15), (0, 0), (6, 17)])
def test_feature_parameters_are_those_of_the_catalog(program: Path, cell_shift: int, average_shift: int) -> None:
    printed = run(program, "parameters", str(cell_shift), str(average_shift)).splitlines()
    assert printed == [feature.params(2**cell_shift, average_shift) for feature in FEATURES]


HEADER = """
#include "buffer/policies/policies.hpp"

namespace mine {
/// Dynamic Thresholds once more, from settings that the header reads itself.
struct Again : foretail::buffer::PolicyTraits {
    Again(const foretail::buffer::PolicySettings& settings, const foretail::buffer::Shape& shape)
        : alpha(settings.alpha[0]), capacity(shape.capacity) {}

    template <class Queues>
    foretail::buffer::Outcome decide(const foretail::buffer::Arrival& arrival, const Queues& queues) const {
        using foretail::buffer::Outcome;
        if (!queues.fits(arrival.size)) return Outcome::buffer_full;
        const double threshold = alpha * static_cast<double>(capacity - queues.occupancy());
        return static_cast<double>(queues.length(arrival.port)) < threshold ? Outcome::accepted
                                                                           : Outcome::over_threshold;
    }
    void about_to_change(foretail::buffer::QueueIndex, foretail::buffer::Tick, foretail::buffer::Bytes) { ++changes; }
    double alpha;
    foretail::buffer::Bytes capacity;
    int changes = 0;
};

struct Asks : foretail::buffer::PolicyTraits {
    static constexpr bool asks = true, follows_thresholds = true, knows_priorities = false;

    template <class Queues, class Ask>
    foretail::buffer::Outcome decide(const foretail::buffer::Arrival& arrival, const Queues& queues,
                                     foretail::buffer::Bytes threshold, Ask&& predicts_drop) const {
        return foretail::buffer::Credence{}.decide(arrival, queues, threshold, predicts_drop);
    }
};
}  // namespace mine
"""


@pytest.fixture(scope="module")
def header(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("headers") / "again.hpp"
    found.write_text(HEADER)
    return found


def arrivals() -> Slotted:
    random = np.random.default_rng(3)
    slot = np.sort(random.integers(0, 4000, 20_000))
    return Slotted(slot, np.where(random.random(20_000) < 0.3, 0, random.integers(0, 8, 20_000)).astype(np.int32))


def test_two_policies_of_a_header_decide_as_those_that_they_repeat_in_slots(header: Path) -> None:
    policies = ["dt", "credence", f"{header}:mine::Again", f"{header}:mine::Asks"]
    batch = arrivals()
    told = compare([batch], 8, 64, policies, accept).transmitted
    assert list(told) == ["dt", "credence", "Again", "Asks", "lqd"]
    assert told["Again"] == told["dt"]
    assert told["Asks"] == told["credence"]
    flipped = compare([batch], 8, 64, policies).transmitted
    assert flipped["Asks"] == flipped["credence"] != told["credence"]


@pytest.mark.parametrize(("own", "guest"), [("dt", "Again"), ("credence", "Asks")])
def test_they_decide_so_in_the_native_network(header: Path, tmp_path: Path, own: str, guest: str) -> None:
    found = []
    for name in (own, f"{header}:mine::{guest}"):
        document = settings(policy__name=name, policy__flip_probability=0.3, trace=True, traffic_ns=2_000_000)
        folder = tmp_path / policy_name(name)
        folder.mkdir()
        run = run_native(document, folder)
        network = NativeNetwork(document)
        network.advance(1_000_000)
        network.restore(network.snapshot())
        network.advance()
        assert network.flows().tobytes() == (folder / "flows.bin").read_bytes()
        found.append([(folder / file).read_bytes() for file in ("flows.bin", "arrivals.bin")])
    assert found[0] == found[1]
    assert sum(switch["data_drops"]["over_threshold"]["packets"] for switch in run.summary["switches"]) > 0


INCLUDES = {
    "macro": '#define OTHER "{path}"\n#include OTHER',
    "digraph": '%:include "{path}"',
    "comment": '/**/ #include "{path}"',
    "split line": "#inc\\\nlude <limit.hpp>",
}


def test_a_changed_include_is_another_policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "in $ a folder"
    folder.mkdir()
    monkeypatch.setenv("CXXFLAGS", shlex.join([f"-I{folder}"]))
    header, path = tmp_path / "limited.hpp", folder / "limit.hpp"

    def identity() -> str:
        return GuestPolicy(header, "mine::Again").sha256

    for include in INCLUDES.values():
        header.write_text(include.format(path=path) + HEADER.replace("alpha *", "LIMIT *"))
        identities = [identity() for limit in (0.01, 64) if path.write_text(f"#define LIMIT {limit}\n")]
        assert identities[0] != identities[1]
    sent = [
        compare([arrivals()], 8, 64, [f"{header}:mine::Again"], accept).transmitted["Again"]
        for limit in (0.01, 64)
        if path.write_text(f"#define LIMIT {limit}\n")
    ]
    assert sent[0] != sent[1]
    monkeypatch.setenv("CXXFLAGS", shlex.join([f"-I{folder}", "-DMORE"]))
    assert identity() != identities[1]


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (("queues.occupancy()", "queues.occupied()"), r"line 14: .*no member named 'occupied'"),
        (("const Queues& queues) const {", "const Queues& queues) const"), r"does not compile: again\.hpp, line \d+: "),
        (("struct Again : foretail::buffer::PolicyTraits", "struct Again"), "must derive publicly from"),
        (("struct Again", "struct Another"), "'?mine::Again'?|Again"),
        (("buffer/policies/policies.hpp", "mine/other.hpp"), "includes 'mine/other.hpp': keep a policy in one header"),
    ],
)
def test_a_header_that_does_not_compile_is_one_sentence(
    tmp_path: Path, change: tuple[str, str], complaint: str
) -> None:
    (tmp_path / "again.hpp").write_text(HEADER.replace(*change))
    with pytest.raises(ForetailError, match=complaint) as refused:
        native_policy(f"{tmp_path}/again.hpp:mine::Again")
    assert len(str(refused.value)) < 500


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (("return static_cast<double>", 'throw std::runtime_error("odd");'), 'the policy Again throws "odd": mend its'),
        (("return static_cast<double>", "throw 5;"), "the policy Again throws what is not a std::exception: mend its"),
        ((": alpha(settings.alpha[0])", ": alpha(settings.alpha.at(9))"), 'the policy Again throws "vector'),
        (("++changes", 'throw std::logic_error("late")'), 'the policy Again throws "late": mend its header'),
        (
            ("return static_cast<double>", "return static_cast<Outcome>(9); return static_cast<double>"),
            "the policy Again answers no Outcome: let it answer accepted, over_threshold, predicted or buffer_full",
        ),
    ],
    ids=["exception", "number", "constructor", "change", "answer"],
)
def test_a_policy_that_fails_is_one_sentence(
    tmp_path: Path, change: tuple[str, str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert change[0] in HEADER
    (tmp_path / "again.hpp").write_text("#include <stdexcept>\n" + HEADER.replace(*change))
    (tmp_path / "arrivals.csv").write_text("slot,port\n" + "".join(f"{slot},0\n" for slot in range(50)))
    policies = f"policies=[lqd,{tmp_path}/again.hpp:mine::Again]"
    switch = [f"arrivals={tmp_path}/arrivals.csv", "ports=2", "buffer=8", f"hydra.run.dir={tmp_path}/run"]
    assert cli.main(["replay", *switch, policies]) == cli.EXIT_BAD_INPUT
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"foretail: {complaint}")


def test_the_path_and_the_text_are_checked_before_anything_compiles(tmp_path: Path) -> None:
    with pytest.raises(ForetailError, match=r"gone\.hpp cannot be read"):
        GuestPolicy.of(f"{tmp_path}/gone.hpp:Rule")
    with pytest.raises(ForetailError, match="odd characters"):
        GuestPolicy.of(f'{tmp_path}/a"b.hpp:Rule')
    assert GuestPolicy.of("dt") is None
