"""The command as a user runs it: exit codes, one sentence on stderr, nothing left behind."""

from __future__ import annotations

import dataclasses
import errno
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from foretail.configs.schema.stages import STAGES as SCHEMAS
from foretail.core.json_text import flat
from foretail.features.catalog import FEATURE_GROUPS, FEATURES
from foretail.pipelines import cli
from foretail.pipelines.command import doctor
from foretail.pipelines.command.reference import SCRIPTS, WIDTH, features_table, settings_of, words
from foretail.pipelines.experiment.catalog import experiments
from foretail.pipelines.settings.compose import composed_settings
from foretail.pipelines.stage import stage_command
from foretail.pipelines.stages import STAGES
from tests.composed import foretail

pytestmark = pytest.mark.slow


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
    (["evaporate"], "unknown command evaporate: choose from collect, train, evaluate, replay, choose, export"),
    (["collect", "scenario.background.load=-1"], "scenario.background.load = -1.0 is out of range"),
    (["collect", "lod=1"], "unknown setting lod"),
    (["evaluate", "inputs=[]"], "inputs is a setting of another stage: --help lists those of this one"),
    (["train", "predictor=mlp", "predictor.depth=3"], "predictor.depth is a setting of another predictor: --help pred"),
    (["train", "scenario=mine"], "star, tiny, or give --config-dir FOLDER, where FOLDER/scenario/mine.yaml is"),
    (["replay", "ports=0x1"], "cannot set ports=0x1: write numbers in decimal digits."),
    (
        ["replay", f"buffer={2**63}"],
        "buffer = 9223372036854775808 is out of range: it must be at least 1, at most 1,099,511,627,776",
    ),
    (["collect", "scenario.background.load=1e400"], "scenario.background.load = inf is not a finite number"),
    (["replay", f"parameters.alpha=[{10**400}]"], "parameters.alpha[0] is a number beyond any fraction: lower it"),
    (
        ["collect", "policy=red"],
        "policy=red is unknown: choose from abm, abm_",
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
    (["export"], "the setting model is missing: give model=..."),
    (["run"], "run needs an experiment: foretail run NAME, with one of abm, benchmark"),
    (["run", "figure_11"], "there is no experiment figure_11: choose from abm, benchmark"),
    (["run", "first_look", "size=medium"], "first_look has no size medium: choose from small, full."),
    (["evaluate", "=1"], "=1 has no name: write name=value"),
    (["evaluate", "--resolve"], "--resolve flag can only be used in conjunction with --cfg"),
    (["evaluate", "--shell-completion"], "Expecting one subcommand"),
    (["evaluate", "seeds=1,2"], "seeds=1,2 are several values: write 'seeds=[1,2]' for all of them, or --multirun"),
    (["schedule", "k=2,3"], "k=2,3 are several values: give one k, or --multirun for one run with each"),
    (["export", "model=a,b.json"], """write 'model="a,b.json"' for one text, or --multirun"""),
    (["export", "model=a=b/m.json"], """quote its value twice, 'model="a=b/m.json"'."""),
    (["export", "model=it's.json"], """quote its value twice, 'model="it'"'"'s.json"'."""),
    (["export", "columns=[a=b]"], """quote each text in it, as in 'columns=["a=b"]'."""),
    (["export", "1a=3"], "'1a=3': write name=value, with a name that --help lists."),
    (["evaluate", "seed=1"], "unknown setting seed: it is called seeds and is a list, as in 'seeds=[1,2]'"),
    (["replay", "parameters.alpha=16"], "it is a list, so write 'parameters.alpha=[16]'"),
    (
        ["train", "predictor._target_=mine.Forest"],
        "finds no module mine: install its package, or name its folder in",
    ),
    (["train", "seed=3"], "seed is a setting of another stage: this one has split.seed, sampling.seed"),
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


def test_a_setting_of_hydra_sweeps_as_its_flag_does(tmp_path: Path) -> None:
    done = foretail(tmp_path, "schedule", "hydra.mode=MULTIRUN", "demand=nothing.csv", "degree=1", "k=2,3")
    assert (done.returncode, "Launching 2 jobs" in done.stdout, "nothing.csv" in done.stderr) == (2, True, True)


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
    error: Exception, code: int, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(config: object, run_dir: Path) -> None:
        raise error

    monkeypatch.setattr("foretail.pipelines.stages.report.report", fail)
    done = foretail(tmp_path, "report", "run=any")
    assert done.returncode == code
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith(f"foretail: {says}")


def test_a_file_in_the_way_of_the_run_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in ("file", "file/run"):
        done = foretail(tmp_path, "report", "run=any", f"hydra.run.dir={folder}")
        assert done.returncode == cli.EXIT_BAD_INPUT
        assert f"cannot make the run folder {folder}" in done.stderr


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
    (b"name: [x\n", "mine.yaml is not valid YAML (line 2, column 1: expected ',' or ']', but got '<stream end>')"),
    (
        b"name: x\nname: y\n",
        "mine.yaml is not valid YAML (line 2, column 1: found duplicate key name)",
    ),
    (b"name: !!python/object:os.system x\n", "mine.yaml is not valid YAML (line 1, column 7: could not determine"),
    (b"name: caf\xe9\n", "mine.yaml cannot be read as UTF-8 text: save it as UTF-8"),
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


LARGEST_HELP = 80
"""Lines of a help text."""


@pytest.mark.parametrize("stage", SCHEMAS)
def test_all_of_the_help_lists_every_setting_with_its_default(stage: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([stage, "--help", "all"]) == 0
    printed = capsys.readouterr().out
    lines = printed.splitlines()
    assert max(map(len, lines[4:])) <= WIDTH + 2, max(lines[4:], key=len)
    for field in dataclasses.fields(SCHEMAS[stage]):
        assert f"\n  {field.name}" in printed
        assert field.metadata["doc"].split()[0] in printed
    listed = {found.name: found.default for found in settings_of(stage_command(stage))}
    leaves = dict(flat(composed_settings(stage)))
    for name, value in leaves.items():
        if isinstance(value, (int, str)) and not isinstance(value, bool) and name in listed:
            assert listed[name] in (str(value), f"{str(value)[:48]}..."), name
    mappings = ("policy.", "collect_policy.", "demand_predictor.", "predictor._target_", "predictor.name")
    missing = [name for name in leaves if name not in listed and not name.startswith(mappings)]
    assert not [name for name in missing if "." not in name], missing


@pytest.mark.nightly
@pytest.mark.parametrize("words", [*([stage] for stage in STAGES), *(["run", name] for name in experiments())])
def test_help_fits_a_screen_and_begins_with_an_example(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*words, "--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= LARGEST_HELP
    assert lines[0].split()[: 1 + len(words)] == ["foretail", *words]


def test_help_of_experiments_has_a_line_for_each(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", "--help"]) == 0
    lines = {line.split(":")[0].strip(): line for line in capsys.readouterr().out.splitlines()}
    for name, one in experiments().items():
        begun = lines[name].removesuffix(" ...").strip()
        assert f"{name}: {' '.join(one.sentence.split())}".startswith(begun)
        assert 40 < len(lines[name]) <= WIDTH
    assert cli.main(["run", "drop_costs", "--help"]) == 0
    assert experiments()["drop_costs"].sentence in " ".join(capsys.readouterr().out.split())
    assert cli.main(["run", "sharing_map", "--help", "families", "size=small"]) == 0
    assert cli.main(["run", "nothing", "--help"]) == 2


def test_help_follows_the_groups_that_are_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["train", "predictor=boosted_trees", "--help", "predictor"]) == 0
    printed = capsys.readouterr().out
    assert "predictor.learning_rate=" in printed
    assert "A whole number, at least 1" in printed
    assert cli.main(["evaluate", "network=emulator", "--help", "network"]) == 0
    assert "network.factor=1000" in capsys.readouterr().out
    assert cli.main(["train", "predictor=none", "--help"]) == 2
    assert "predictor=none is unknown: choose from boosted_forest" in capsys.readouterr().err


def test_version_and_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    version = capsys.readouterr().out
    assert version.startswith("foretail ")
    assert cli.main(["schedule", "--version"]) == 0
    assert capsys.readouterr().out == version
    assert cli.main(["benchmark", "--help"]) == 0
    assert capsys.readouterr().out.startswith("foretail run benchmark")
    for command in cli.COMMANDS.keys() - {"benchmark"}:
        assert cli.main([command, "--help"]) == 0
        assert capsys.readouterr().out.startswith(f"usage: foretail {command}")
        if command != "verify":
            assert cli.main([command, "more", "than", "it takes"]) == 2
            assert capsys.readouterr().out.startswith(f"usage: foretail {command}")


def test_features_are_listed_with_all_that_the_page_of_the_site_says(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["features"]) == 0
    printed = capsys.readouterr().out
    listed = {row[0]: row for row in features_table().rows}
    for one in FEATURES:
        assert one.name in printed
        assert listed[one.name][-1] == one.description
        cost = (
            (None, None, None) if one.study_only else (one.cost.queue_bits, one.cost.switch_bits, one.cost.operations)
        )
        assert listed[one.name][1:7] == (one.state, one.unit, one.bits, *cost)
        sets = str(listed[one.name][7])
        assert all((name in sets.split(", ")) == (one.name in names) for name, names in FEATURE_GROUPS.items())
    assert "features=SET chooses a set" in printed


@pytest.mark.parametrize(
    ("line", "among"),
    [
        ("foretail tr", {"train"}),
        ("foretail do", {"doctor"}),
        ("foretail run vermilion_fig9_", {f"vermilion_fig9_{number}" for number in (1, 5, 6, 7, 8)}),
        ("foretail run credence_fig14 see", {"seeds="}),
        ("foretail train predictor=m", {"predictor=mlp"}),
        ("foretail train predictor.dep", {"predictor.depth="}),
        ("foretail train scenario=t", {"scenario=tiny"}),
        ("foretail train scenario.background.destinations=n", {"scenario.background.destinations=next_leaf"}),
        ("foretail train tracking.enabled=f", {"tracking.enabled=false"}),
        ("foretail train --mu", {"--multirun"}),
        ("foretail verify out", set()),
    ],
)
def test_words_are_completed(line: str, among: set[str]) -> None:
    assert set(words(line, tuple(cli.COMMANDS))) == among


def test_bash_completes(tmp_path: Path) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("there is no bash")
    (tmp_path / "foretail").write_text(f'#!/bin/sh\nexec {sys.executable} -m foretail.pipelines.cli "$@"\n')
    (tmp_path / "foretail").chmod(0o755)
    script = SCRIPTS["bash"] + (
        f'PATH="{tmp_path}:$PATH"; COMP_LINE="foretail train predictor=ml"; COMP_POINT=${{#COMP_LINE}}\n'
        "compopt() { :; }; _foretail\n"
        'printf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    done = subprocess.run([bash, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["mlp"], done.stderr


@pytest.mark.skipif(shutil.which("zsh") is None, reason="there is no zsh")
@pytest.mark.parametrize(
    ("line", "becomes"),
    [
        ("foretail tra", "foretail train "),
        ("foretail train predictor=ml", "foretail train predictor=mlp "),
        ("foretail train predictor.dep", "foretail train predictor.depth="),
        ("foretail verify out", "foretail verify outputs/"),
        ("foretail export model=out", "foretail export model=outputs/"),
    ],
)
def test_zsh_completes(line: str, becomes: str, tmp_path: Path) -> None:
    """A real zsh in a terminal gets the line and a tab, and shows what became of it."""
    (tmp_path / "foretail").write_text(f'#!/bin/sh\nexec {sys.executable} -m foretail.pipelines.cli "$@"\n')
    (tmp_path / "foretail").chmod(0o755)
    (tmp_path / "script").write_text(SCRIPTS["zsh"])
    (tmp_path / "outputs").mkdir()
    shown = "show() { print -r -- \"<$BUFFER\"'>' }; zle -N show; bindkey '^X' show; print DO''NE\n"
    read, write = pty.openpty()
    with subprocess.Popen(
        ["zsh", "-f", "-i"],
        cwd=tmp_path,
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "ZDOTDIR": str(tmp_path), "TERM": "dumb"},
        stdin=write,
        stdout=write,
        stderr=write,
        start_new_session=True,
    ) as shell:
        os.close(write)
        try:
            os.write(read, f"source ./script; {shown}".encode())
            printed(read, b"DONE\r")
            os.write(read, f"{line}\t\x18".encode())
            assert re.findall(rb"<([^>]*)>\r?\n", printed(read, b">\r\n"))[-1].decode() == becomes
        finally:
            shell.kill()
            os.close(read)


def printed(terminal: int, until: bytes) -> bytes:
    """Return the output of a terminal up to some words, or of a minute."""
    found = b""
    while until not in found and select.select([terminal], [], [], 60)[0]:
        found += os.read(terminal, 4096)
    return found


def test_the_doctor_names_what_is_missing_and_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["doctor"]) == 0
    whole = capsys.readouterr().out
    assert "ns-3 driver" in whole
    assert not list(tmp_path.iterdir())
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setitem(doctor.EXTRAS, "gym", (("no-such-package",), "environments"))
    monkeypatch.setattr(doctor, "TUN", str(tmp_path / "tun"))
    assert cli.main(["doctor"]) == 2
    printed = capsys.readouterr().out
    assert "TUN interfaces: for foretail evaluate network=emulator: modprobe tun" in printed
    assert "C++ compiler (needed): install g++ 10" in printed
    assert "extra gym: pip install '.[gym]' in Foretail's folder, for environments" in printed


def test_a_reader_that_has_enough_is_no_error() -> None:
    command = f"{sys.executable} -m foretail.pipelines.cli train --help | head -n 1"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=60)
    assert done.stdout.startswith("foretail train predictor")
    assert done.stderr == ""


@pytest.mark.nightly
@pytest.mark.parametrize("arguments", [("train", "predictor=mlp"), ("demand", "demand_predictor=history_attention")])
def test_a_missing_extra_is_named_before_any_work(arguments: tuple[str, ...], tmp_path: Path) -> None:
    # SciPy looks into sys.modules for PyTorch, and takes None for it
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / "torch.py").write_text("raise ModuleNotFoundError('No module named torch', name='torch')\n")
    hidden = f"sys.path.insert(0, {str(tmp_path / 'hidden')!r})"
    program = f"import sys; {hidden}; from foretail.pipelines.cli import main; sys.exit(main())"
    before = list(tmp_path.iterdir())
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2, done.stderr
    assert "pip install '.[nn]'" in done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    assert list(tmp_path.iterdir()) == before  # neither a run nor a store nor a dataset


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_an_error_that_follows_a_signal_is_an_interruption(
    number: signal.Signals, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def load() -> int:
        try:
            os.kill(os.getpid(), number)
            time.sleep(10)
        except KeyboardInterrupt:  # as an extension module does that is interrupted while it is imported
            raise ImportError("initialization failed") from None
        return 0

    monkeypatch.setattr(cli, "_doctor", load)
    assert cli.main(["doctor"]) == code
    assert capsys.readouterr().err == "foretail: interrupted; only what is complete is kept.\n"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


STOPS_AT = """
import os, signal, sys
class Stop:
    def find_spec(name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), {number})
sys.meta_path.insert(0, Stop)
"""
AS_COMMAND = "\nfrom foretail.pipelines.cli import main\nsys.exit(main())"


@pytest.mark.parametrize(
    ("module", "number", "code"),
    [
        ("hydra", signal.SIGTERM, 143),
        ("foretail.pipelines.errors", signal.SIGINT, 130),
        ("foretail.pipelines.data.collecting", signal.SIGINT, 130),
    ],
)
def test_a_signal_while_modules_are_imported(number: int, code: int, module: str, tmp_path: Path) -> None:
    program = STOPS_AT.format(module=module, number=int(number)) + AS_COMMAND
    command = [sys.executable, "-c", program, "collect", "source=slotted", "slotted.slots=10"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (code, "foretail: interrupted; only what is complete is kept.\n")
    assert not list(tmp_path.rglob("result.json"))


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.nightly)])
def test_a_signal_after_the_result_changes_nothing(number: int, tmp_path: Path) -> None:
    stopping = (
        "import atexit, os, sys\n"
        "import foretail.pipelines.stage as stage\n"
        f"stop = lambda *given: os.kill(os.getpid(), {int(number)})\n"
        "atexit.register(stop)\n"
        "show = stage.show\n"
        "stage.show = lambda tables: (stop(), show(tables))"
    )
    command = [sys.executable, "-c", stopping + AS_COMMAND, "collect", "source=slotted", "slotted.slots=10"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    assert "result: " in done.stdout
