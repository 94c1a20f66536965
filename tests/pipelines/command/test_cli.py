"""The command as a user runs it: exit codes, one sentence on stderr, nothing left behind."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from foretail.pipelines import cli
from foretail.pipelines.stages import STAGES

pytestmark = pytest.mark.slow


def foretail(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "foretail.pipelines.cli", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600, check=False)


def assert_refused(folder: Path, done: subprocess.CompletedProcess[str], complaint: str) -> None:
    assert done.returncode == cli.EXIT_BAD_INPUT, done.stderr
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("foretail: ")
    assert lines[0].endswith((".", "?"))
    assert complaint in lines[0]
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert list(folder.iterdir()) == []


REFUSED = [
    (["evaporate"], "unknown command evaporate: choose from collect, train, distill, evaluate, replay, export"),
    (["collect", "scenario.background.load=-1"], "scenario.background.load = -1.0 is out of range"),
    (["collect", "scenario.incast.fan_in=9"], "more than the 8 servers"),
    (["collect", "scenario.background.lod=1"], "did you mean scenario.background.load?"),
    (["collect", "lod=1"], "unknown setting lod"),
    (["evaluate", "inputs=[]"], "inputs is a setting of another stage: --help lists those of this one"),
    (["train", "predictor=mlp", "predictor.depth=3"], "predictor.depth is a setting of another predictor: --help pred"),
    (["train", "scenario=mine"], "star, tiny, or give --config-dir FOLDER, where FOLDER/scenario/mine.yaml is"),
    (["replay", "ports=0x1"], "cannot set ports=0x1: write numbers in decimal digits."),
    (["collect", "seeds=[0b1]"], "cannot set seeds=[0b1]: write numbers in decimal digits."),
    (["replay", "ports=4294967296"], "ports = 4294967296 is out of range: it must be at most 32768"),
    (["replay", f"buffer={2**63}"], "buffer = 9223372036854775808 is out of range: it must be at most 1099511627776"),
    (["collect", "scenario.background.load=1e400"], "scenario.background.load = inf is not a finite number"),
    (["replay", f"parameters.alpha=[{10**400}]"], "parameters.alpha[0] is a number beyond any fraction: lower it"),
    (
        ["collect", "scenario=leafspin"],
        "choose from clustered_incast, collectives, elephants, leafspine_small, lossless, on_off_elephants, paper, "
        "permutation, rack, rdma, star, tiny",
    ),
    (
        ["collect", "policy=red"],
        "choose from abm, abm_tuned, cp, credence, credence_accept, credence_artifact, cs,",
    ),
    (
        ["collect", "scenario.topology.leaves=four"],
        "leaves=four: 'four' is not a whole number: write digits alone, without a unit.",
    ),
    (["collect", "scenario.topology"], "cannot read 'scenario.topology': write name=value"),
    (["collect", "seeds=[1"], "cannot read 'seeds=[1': close its brackets"),
    (
        ["evaluate", "policy=[lqd,", "dt]"],
        "cannot read 'policy=[lqd,': close its brackets, and quote the whole setting",
    ),
    (["evaluate", "policy.dt.alhpa=1"], "unknown setting policy.dt.alhpa: did you mean policy.dt.alpha?"),
    (["evaluate", "policy.alpha=1"], "unknown setting policy.alpha: did you mean policy.NAME.alpha?"),
    (["replay", "policy=[lqd]"], "policy is a setting of another stage: did you mean policies?"),
    (["replay", "policies=[{name: dt, alpha: 8}]"], "policies has {name: dt, alpha: 8}, and takes names alone"),
    (["replay", "arrivals=a.csv", "policies=[dt_tuned]"], "dt_tuned is of evaluate: give dt and parameters.alpha=[16]"),
    (["collect", "scenario=conf/scenario/my.yaml"], "takes a name, not a file: keep it as FOLDER/scenario/my.yaml"),
    (["collect", "--sweep"], "unrecognized arguments: --sweep"),
    (["collect", "--experimental-rerun", "config.pickle"], "a pickle, which Foretail never does"),
    (["collect", "+load=1"], "unknown setting load"),
    (["train", "predictor=neural"], "predictor=neural is unknown: choose from boosted_forest"),
    (["export"], "the setting model is missing: give model=..."),
    (["evaluate"], "asks a predictor and there is none"),
]


@pytest.mark.parametrize(
    ("arguments", "complaint"), REFUSED, ids=lambda value: " ".join(value) if isinstance(value, list) else ""
)
def test_bad_input_gets_one_sentence_and_exit_code_2(tmp_path: Path, arguments: list[str], complaint: str) -> None:
    assert_refused(tmp_path, foretail(tmp_path, *arguments), complaint)


def test_a_file_of_settings_that_does_not_fit_is_named_with_the_setting(tmp_path: Path) -> None:
    own, empty = tmp_path / "own", tmp_path / "empty"
    (own / "split").mkdir(parents=True)
    empty.mkdir()
    (own / "split" / "mine.yaml").write_text("name: by_run\nshifts: 1\n", encoding="utf-8")
    done = foretail(empty, "train", f"hydra.searchpath=[file://{own}]", "split=mine")
    assert_refused(empty, done, "in split/mine.yaml: split.shifts: did you mean split.")


MOVED = {
    "emulate": "foretail emulate is called foretail evaluate network=emulator, and its experiments foretail run NAME.",
    "study": "foretail study is called foretail run predictor_study",
    "search": "foretail search is called foretail run predictor_search",
    "search experiment=drop_costs size=small": "foretail search experiment=drop_costs is called foretail run drop",
    "evaluate experiment=sharing_map": "foretail evaluate experiment=sharing_map is called foretail run sharing_map.",
    "schedule experiment=vermilion_fig9_5": "is called foretail run vermilion_fig9_5.",
    "evaluate arrivals=a.csv ports=2": "foretail evaluate arrivals=a.csv is called foretail replay arrivals=a.csv.",
    "evaluate datasets=[a]": "foretail evaluate datasets=[a] is called foretail replay datasets=[a].",
    "collect source=emulator seeds=[1]": "collect source=emulator is called foretail collect network=emulator.",
}


@pytest.mark.parametrize("line", MOVED)
def test_what_another_command_does_is_answered_with_its_name(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(line.split()) == cli.EXIT_BAD_INPUT
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert MOVED[line] in captured.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run"], "run needs an experiment: foretail run NAME, with one of abm, balancer_shift"),
        (["run", "figure_11"], "there is no experiment figure_11: choose from abm, balancer_shift"),
        (["run", "flips", "size=medium"], "flips has no size medium: choose from small, full."),
    ],
)
def test_an_experiment_that_there_is_not_is_refused(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(arguments) == cli.EXIT_BAD_INPUT
    assert words in capsys.readouterr().err


def test_debug_adds_the_traceback(tmp_path: Path) -> None:
    done = foretail(tmp_path, "collect", "--debug", "seeds=[]")
    assert done.returncode == cli.EXIT_BAD_INPUT
    assert "Traceback" in done.stderr
    assert done.stderr.splitlines()[-1] == "foretail: seeds is empty: give at least one seed, such as seeds=[1]."


@pytest.mark.parametrize(
    ("error", "code", "says"),
    [
        (FileNotFoundError(errno.ENOENT, "No such file", "forgotten.json"), cli.EXIT_DEFECT, "defect: FileNotFound"),
        (IsADirectoryError(errno.EISDIR, "Is a directory", "made"), cli.EXIT_DEFECT, "defect: IsADirectoryError"),
        (OSError("of a library, without a number"), cli.EXIT_DEFECT, "defect: OSError"),
        (OSError(errno.ENOSPC, "No space left", "big"), cli.EXIT_BAD_INPUT, "no space is left on the disk (big): free"),
        (
            PermissionError(errno.EACCES, "Permission denied", "x"),
            cli.EXIT_BAD_INPUT,
            "Permission denied (x)",
        ),
        (OSError(errno.EMFILE, "Too many open files"), cli.EXIT_BAD_INPUT, "Too many open files"),
        (MemoryError(), cli.EXIT_BAD_INPUT, "there is too little memory (MemoryError): free some"),
        (
            ImportError("libarrow.so: failed to map segment from shared object"),
            cli.EXIT_BAD_INPUT,
            "there is too little memory (libarrow.so: failed to map segment from shared object): free",
        ),
    ],
)
def test_a_file_that_we_forgot_is_a_defect_and_a_full_disk_is_not(
    error: Exception,
    code: int,
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(config: object, run_dir: Path) -> None:
        raise error

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("foretail.pipelines.stages.report.report", fail)
    assert cli.main(["report", "run=any"]) == code
    shown = capsys.readouterr().err
    assert len(shown.splitlines()) == 1
    assert shown.startswith(f"foretail: {says}")


def test_a_file_in_the_way_of_the_run_folder_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    for folder in ("file", "file/run"):
        assert cli.main(["report", "run=any", f"hydra.run.dir={folder}"]) == cli.EXIT_BAD_INPUT
        assert f"cannot make the run folder {folder}" in capsys.readouterr().err


def test_help_lists_every_stage_with_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--help"]) == 0
    text = capsys.readouterr().out
    for stage, (what, example) in STAGES.items():
        assert what in text
        assert example in text
        assert example.startswith(f"foretail {stage}")
    assert cli.main([]) == cli.EXIT_BAD_INPUT


def test_a_stage_also_runs_as_a_module(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "foretail.pipelines", "collect", "seeds=[]"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False)
    assert_refused(tmp_path, done, "seeds is empty")


UNREADABLE = [
    (
        b"defaults: [tiny]\n\tname: x\n",
        "mine.yaml is not valid YAML (line 2, column 1: found character '\\t'",
    ),
    (b"name: [x\n", "mine.yaml is not valid YAML (line 2, column 1: expected ',' or ']', but got '<stream end>')"),
    (
        b"name: x\nname: y\n",
        "mine.yaml is not valid YAML (line 2, column 1: found duplicate key name)",
    ),
    (b"name: !!python/object:os.system x\n", "mine.yaml is not valid YAML (line 1, column 7: could not determine"),
    (b"name: caf\xe9\n", "mine.yaml cannot be read as UTF-8 text: save it as UTF-8"),
    (b"\x7fELF\x02\x01\x00\x00\xd0", "mine.yaml cannot be read as UTF-8 text: save it as UTF-8"),
    (b"defaults: 3\nname: x\n", "Invalid defaults list in 'scenario/mine', defaults must be a list (got int)"),
    (b"defaults: [mine]\nname: x\n", "a file of settings includes itself: remove it from its own defaults list"),
    (b"- a\n- b\n", "in scenario/mine.yaml: "),
    (
        b"defaults: [base_scenario, _self_]\nname: x\ntraffic_ns: 2000.0\n",
        "in scenario/mine.yaml: scenario.traffic_ns: '2000.0' is not a whole number: write digits alone, without",
    ),
]


@pytest.mark.parametrize(("content", "complaint"), UNREADABLE)
def test_a_file_of_settings_that_cannot_be_read_is_named(
    content: bytes, complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "scenario").mkdir()
    (tmp_path / "scenario" / "mine.yaml").write_bytes(content)
    given = ["evaluate", "--config-dir", str(tmp_path), "scenario=mine", "--cfg", "job"]
    assert cli.main(given) == cli.EXIT_BAD_INPUT
    assert complaint in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["=1"], "=1 has no name: write name=value"),
        (["=null"], "=null has no name: write name=value"),
        (["--resolve"], "--resolve flag can only be used in conjunction with --cfg"),
        (["--shell-completion"], "Expecting one subcommand"),
    ],
)
def test_left_overs_of_hydra_are_refused(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["evaluate", *arguments]) == cli.EXIT_BAD_INPUT
    assert complaint in capsys.readouterr().err


def test_flags_with_values_are_no_groups_of_settings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["evaluate", "--help", "--config-dir", str(tmp_path)]) == 0
    assert "most used settings" in capsys.readouterr().out


def test_a_folder_that_no_text_holds_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"bad\xff")
    folder.mkdir()
    assert_refused(folder, foretail(folder, "train"), "/bad\\xff has a name that is not UTF-8")
    here = tmp_path / "here"
    here.mkdir()
    assert_refused(here, foretail(here, "schedule", f"demand={folder}/d.csv"), "bad\\xff/d.csv has a name that is not")
    done = subprocess.run(
        ["sh", "-c", f"rmdir {here} && {sys.executable} -m foretail.pipelines.cli train"],
        cwd=here,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == "foretail: the current folder is gone: change to one that exists.\n"
