"""What the command says of itself: help, version, completion, doctor, and what is missing. Costs 15 s."""

from __future__ import annotations

import dataclasses
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
from foretail.pipelines.command.completion import SCRIPTS, words
from foretail.pipelines.command.reference import WIDTH, features_table, settings_of
from foretail.pipelines.experiment.catalog import experiments
from foretail.pipelines.settings.compose import composed_settings
from foretail.pipelines.stage import stage_command
from foretail.pipelines.stages import STAGES

pytestmark = pytest.mark.slow

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
@pytest.mark.full
@pytest.mark.parametrize("words", [*([stage] for stage in STAGES), *(["run", name] for name in experiments())])
def test_help_fits_a_screen_and_begins_with_an_example(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*words, "--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= LARGEST_HELP
    assert lines[0].split()[: 1 + len(words)] == ["foretail", *words]


def test_help_names_every_setting_of_a_stage_or_its_group(capsys: pytest.CaptureFixture[str]) -> None:
    for stage, schema in SCHEMAS.items():
        assert cli.main([stage, "--help"]) == 0
        printed = " ".join(capsys.readouterr().out.split())
        assert not [field.name for field in dataclasses.fields(schema) if field.name not in printed]


def test_help_of_a_group_shows_its_settings(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["collect", "--help", "scenario.incast"]) == 0
    printed = capsys.readouterr().out
    assert "scenario.incast.fan_in=" in printed
    assert "scenario.background.load" not in printed
    assert cli.main(["collect", "--help", "incast"]) == 2
    assert "foretail collect has no group of settings incast" in capsys.readouterr().err


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
    assert "an integer >= 1" in printed
    assert cli.main(["evaluate", "network=emulator", "--help", "network"]) == 0
    assert "network.factor=1000" in capsys.readouterr().out
    assert cli.main(["train", "predictor=none", "--help"]) == 2
    assert "predictor=none is unknown: choose from boosted_forest" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["evaluate", "seeds=1,2"], "seeds=1,2 are several values: write 'seeds=[1,2]' for all of them, or --multirun"),
        (["schedule", "k=2,3"], "k=2,3 are several values: give one k, or --multirun for one run with each"),
        (["train", "predictor.depth=2,3"], "give one predictor.depth, or --multirun"),
        (["export", "model=a,b.json"], """write 'model="a,b.json"' for one text, or --multirun"""),
        (["export", "model=a=b/m.json"], """quote its value twice, 'model="a=b/m.json"'."""),
        (["export", "model=日本/m.json"], """quote its value twice, 'model="日本/m.json"'."""),
        (["export", "model=it's.json"], """quote its value twice, 'model="it'"'"'s.json"'."""),
        (["export", "columns=[a=b]"], """quote each text in it, as in 'columns=["a=b"]'."""),
        (["export", "1a=3"], "'1a=3': write name=value, with a name that --help lists."),
        (["evaluate", "seed=1"], "unknown setting seed: it is called seeds and is a list, as in 'seeds=[1,2]'"),
        (["replay", "prediction=perfect"], "unknown setting prediction: did you mean predictions?"),
        (["replay", "parameters.alpha=16"], "it is a list, so write 'parameters.alpha=[16]'"),
        (
            ["train", "predictor._target_=mine.Forest"],
            "finds no module mine: install its package, or name its folder in",
        ),
        (["train", "seed=3"], "seed is a setting of another stage: this one has split.seed, sampling.seed"),
    ],
)
def test_a_setting_of_nearly_the_right_name(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(arguments) == 2
    assert sentence in capsys.readouterr().err


def test_a_file_of_a_scenario_without_its_defaults(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "scenario").mkdir()
    (tmp_path / "scenario" / "mine.yaml").write_text(
        "name: mine\ntopology: {leaves: 2, servers_per_leaf: 4, spines: 2}\n"
    )
    assert cli.main(["collect", "--config-dir", str(tmp_path), "scenario=mine"]) == 2
    assert "or let its file begin with 'defaults: [base_scenario, " in capsys.readouterr().err


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


@pytest.mark.parametrize(("line", "becomes"), [("foretail tra", "train"), ("foretail train predictor=ml", "mlp")])
def test_bash_completes(line: str, becomes: str, tmp_path: Path) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("there is no bash")
    (tmp_path / "foretail").write_text(f'#!/bin/sh\nexec {sys.executable} -m foretail.pipelines.cli "$@"\n')
    (tmp_path / "foretail").chmod(0o755)
    script = SCRIPTS["bash"] + (
        f'PATH="{tmp_path}:$PATH"; COMP_LINE="{line}"; COMP_POINT=${{#COMP_LINE}}\n'
        "compopt() { :; }; _foretail\n"
        'printf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    done = subprocess.run([bash, "-c", script], capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == [becomes], done.stderr


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
    """What a terminal prints up to some words, or in a minute."""
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
@pytest.mark.full
@pytest.mark.parametrize(
    ("module", "arguments", "extra"),
    [
        ("torch", ("train", "predictor=mlp"), "nn"),
        ("torch", ("demand", "demand_predictor=history_attention"), "nn"),
        ("ray", ("run", "competitive_ratio", "size=small", "launcher=ray"), "ray"),
    ],
)
def test_a_missing_extra_is_named_before_any_work(
    module: str, arguments: tuple[str, ...], extra: str, tmp_path: Path
) -> None:
    hidden = f"sys.modules[{module!r}] = None"
    if module == "torch":  # SciPy looks into sys.modules for PyTorch, and takes None for it
        hidden = f"sys.path.insert(0, {str(tmp_path / 'hidden')!r})"
        (tmp_path / "hidden").mkdir()
        (tmp_path / "hidden" / "torch.py").write_text(
            "raise ModuleNotFoundError('No module named torch', name='torch')\n"
        )
    program = f"import sys; {hidden}; from foretail.pipelines.cli import main; sys.exit(main())"
    before = list(tmp_path.iterdir())
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2, done.stderr
    assert f"pip install '.[{extra}]'" in done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    assert list(tmp_path.iterdir()) == before  # neither a run nor a store nor a dataset


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_an_error_that_follows_a_signal_is_an_interruption(
    number: signal.Signals, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def load(arguments: object) -> int:
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


def test_flags_may_stand_behind_settings(tmp_path: Path) -> None:
    (tmp_path / "conf" / "predictor").mkdir(parents=True)
    (tmp_path / "conf" / "predictor" / "mine.yaml").write_text(
        "_target_: foretail.models.drop.forest.ExtraTrees\nname: mine\ntrees: 3\n"
    )
    command = [sys.executable, "-m", "foretail.pipelines.cli", "train", "predictor=mine"]
    done = subprocess.run(
        [*command, "--config-dir", "conf", "predictor.trees=5", "--cfg", "job"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "trees: 5" in done.stdout


STOPS_AT = """
import os, signal, sys
class Stop:
    def find_spec(name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), {number})
sys.meta_path.insert(0, Stop)
"""
AS_COMMAND = "\nfrom foretail.pipelines.cli import main\nsys.exit(main())"


@pytest.mark.parametrize("module", ["hydra", "foretail.pipelines.errors", "foretail.pipelines.data.slotted_traffic"])
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_while_modules_are_imported(number: int, code: int, module: str, tmp_path: Path) -> None:
    program = STOPS_AT.format(module=module, number=int(number)) + AS_COMMAND
    command = [sys.executable, "-c", program, "collect", "source=slotted", "slotted.slots=10"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (code, "foretail: interrupted; only what is complete is kept.\n")
    assert not list(tmp_path.rglob("result.json"))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
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
