"""The ``foretail`` command: ``foretail COMMAND [overrides]``, and what takes no settings, as ``foretail doctor``."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from foretail.core.errors import ForetailError, printable, without_passwords
from foretail.pipelines.runs.ending import StageFailed, Terminated, stoppable
from foretail.pipelines.stages import STAGES  # Hydra, which takes a quarter of a second, is imported where a stage runs

if TYPE_CHECKING:
    from foretail.pipelines.stage import Command

COMMANDS = {
    "benchmark": (
        "judge a model, a rule or a policy on frozen conditions: run benchmark",
        "model=MODEL [track=TRACK] [size=small]",
    ),
    "ui": ("show the tracked runs of this folder: MLflow's pages on 127.0.0.1", "[--port PORT]"),
    "features": ("list what a switch can know: meaning, unit, costs, and the sets that have it", ""),
    "zoo": ("list the rules from which foretail choose chooses, with their certificates", ""),
    "verify": ("tell whether folders, stores and tracking files are as Foretail wrote them", "PATH..."),
    "doctor": ("tell what this machine has, and how to get the rest", ""),
    "completion": ('print what completes words in a shell: eval "$(foretail completion bash)"', "bash|zsh"),
}
"""Commands that are not stages: what each does, and its arguments."""
TRACKS = {
    "closed_loop": "benchmark",
    "open_loop": "benchmark_open_loop",
    "adaptive": "benchmark_adaptive",
    "demand": "benchmark_demand",
}
"""The experiments of ``foretail benchmark track=TRACK``; the first is what it runs without a track."""
WITH_VALUE = frozenset(
    {"--config-dir", "-cd", "--config-name", "-cn", "--config-path", "-cp", "--cfg", "-c", "--package"}
)
"""Hydra's flags that are followed by a value."""
EXIT_DEFECT, EXIT_BAD_INPUT, EXIT_REFUSED, EXIT_INCOMPLETE, EXIT_INTERRUPTED, EXIT_TERMINATED = 1, 2, 3, 4, 130, 143


def usage() -> str:
    """The text of ``foretail --help``."""
    width = max(map(len, (*STAGES, *COMMANDS)))
    lines = ["usage: foretail COMMAND [name=value ...] [--multirun] [--debug]", "", "commands:"]
    for stage, (what, example) in STAGES.items():
        lines += [f"  {stage:<{width}}  {what}", f"  {'':<{width}}    {example}"]
    lines += ["", "other commands:"]
    for command, (what, arguments) in COMMANDS.items():
        lines += [f"  {command:<{width}}  {what}", f"  {'':<{width}}    foretail {command} {arguments}".rstrip()]
    lines += [
        "",
        "foretail COMMAND --help shows its most used settings; foretail COMMAND --cfg job prints all that it uses;",
        "--multirun sweeps over values given as name=a,b,c; --debug shows the traceback of an error.",
    ]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code.

    0 done, 2 bad input, 3 a gate says no, 4 points of a sweep failed, 130 Ctrl-C, 143 SIGTERM, 1 a defect of Foretail.
    """
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")  # NumPy's idle threads sleep at once, and do not spin
    stopped: list[int] = []
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = False
    with stoppable(stopped, of_process=arguments is None):
        try:
            given = as_run(with_command(given))
            debug = "--debug" in given
            given = [argument for argument in given if argument != "--debug"]
            return _run(given)
        except KeyboardInterrupt as stop:
            return _interrupted(stop, signal.SIGTERM if isinstance(stop, Terminated) else signal.SIGINT, debug)
        except BrokenPipeError:  # whoever reads has enough, as head has
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        except (Exception, StageFailed) as raised:
            error = raised.error if isinstance(raised, StageFailed) else raised
            return _failed(error, given, debug) if not stopped else _interrupted(error, stopped[0], debug)


def _run(given: Sequence[str]) -> int:
    if not given or given[0] in ("-h", "--help"):
        print(usage())
        return 0 if given else EXIT_BAD_INPUT
    if "--version" in given:
        from importlib import metadata

        print(f"foretail {metadata.version('foretail')}")
        return 0
    if (sentence := _unwritable(given)) is not None:
        return _refuse(sentence)
    stage, overrides = given[0], given[1:]
    if stage not in (*STAGES, *COMMANDS):
        return _refuse(f"unknown command {stage}: choose from {', '.join((*STAGES, *COMMANDS))}.")
    if stage in COMMANDS:
        return _run_command(stage, overrides)
    if not {"--help", "-h"}.isdisjoint(overrides):
        return _help(stage, [override for override in overrides if override not in ("--help", "-h")])
    return _run_stage(*_command(stage, overrides))


def _unwritable(arguments: Sequence[str]) -> str | None:
    """Complaint about a folder or an argument that no text holds, as files of Parquet, MLflow and results are."""
    try:
        here = str(Path.cwd())
    except FileNotFoundError:
        return "the current folder is gone: change to one that exists."
    for text in (here, *arguments):
        if any("\ud800" <= letter <= "\udfff" for letter in text):
            shown = os.fsencode(text).decode("utf-8", "backslashreplace")
            return f"{shown} has a name that is not UTF-8, which results cannot hold: rename that file or folder."
    return None


def _interrupted(error: BaseException, number: int, debug: bool) -> int:
    """Whatever is raised after a signal comes from it: an import that is interrupted calls its package missing."""
    if debug:
        print(printable("".join(traceback.format_exception(error))), end="", file=sys.stderr)
    print("foretail: interrupted; only what is complete is kept.", file=sys.stderr)
    return EXIT_TERMINATED if number == signal.SIGTERM else EXIT_INTERRUPTED


def _failed(error: BaseException, given: Sequence[str], debug: bool) -> int:
    from foretail.pipelines.errors import GateRefused, PointsFailed, is_bad_input, sentence
    from foretail.pipelines.stage import setting_types

    if debug:
        print(printable("".join(traceback.format_exception(error))), end="", file=sys.stderr)
    if is_bad_input(error):
        try:
            of_command = setting_types(_command(given[0], given[1:])[0].schema)
        except (ForetailError, KeyError):  # of no command that has settings
            of_command = {}
        _refuse(sentence(error, setting_types(), of_command))
        if isinstance(error, PointsFailed):
            return EXIT_INCOMPLETE
        return EXIT_REFUSED if isinstance(error, GateRefused) else EXIT_BAD_INPUT
    text = printable(" ".join(str(error).split()))
    print(f"foretail: defect: {type(error).__name__}: {text}; --debug shows where.", file=sys.stderr)
    return EXIT_DEFECT


def with_command(arguments: Sequence[str]) -> list[str]:
    """Make a setting of what stands behind ``--``, which is a command that hosts of the emulator run."""
    if "--" not in arguments or arguments[0] != "evaluate":
        return list(arguments)
    from hydra.core.override_parser.types import Quote, QuotedString

    at = list(arguments).index("--")
    words = (QuotedString(word.replace("${", "\\${"), Quote.double).with_quotes() for word in arguments[at + 1 :])
    return [*arguments[:at], f"network.command=[{','.join(words)}]"]


def as_run(arguments: Sequence[str]) -> list[str]:
    """Make ``run benchmark`` of ``benchmark``, and ``run benchmark_open_loop`` of ``benchmark track=open_loop``."""
    if arguments[:1] != ["benchmark"]:
        return list(arguments)
    tracks = [argument.partition("=")[2] for argument in arguments if argument.startswith("track=")]
    if unknown := [track for track in tracks if track not in TRACKS]:
        raise ForetailError(f"track={unknown[0]} is unknown: choose from {', '.join(TRACKS)}")
    others = [argument for argument in arguments[1:] if not argument.startswith("track=")]
    return ["run", TRACKS[tracks[-1] if tracks else "closed_loop"], *others]


def _command(stage: str, arguments: Sequence[str]) -> tuple[Command, Sequence[str]]:
    """The command that Hydra composes settings for, and its settings as they are written."""
    from foretail.pipelines.stage import stage_command

    if stage != "run":
        return stage_command(stage), arguments
    from foretail.pipelines.experiment.catalog import INSTALL, USUAL_SIZE, command_of, experiments

    if not arguments or arguments[0].startswith("-") or "=" in arguments[0]:
        known = ", ".join(experiments())
        raise ForetailError(
            f"run needs an experiment: foretail run NAME, with one of {known}"
            if known
            else f"no experiments are installed: {INSTALL}"
        )
    name, *overrides = arguments
    sizes = [override.partition("=")[2] for override in overrides if override.startswith("size=")]
    others = [override for override in overrides if not override.startswith("size=")]
    return command_of(name, sizes[-1] if sizes else USUAL_SIZE), [*others, *(f"size={size}" for size in sizes[-1:])]


def _run_stage(command: Command, overrides: Sequence[str]) -> int:
    import yaml

    from foretail.pipelines.errors import is_bad_input, unreadable_settings
    from foretail.pipelines.stage import application

    flags, settings = _parted(overrides)
    overrides, named = [*flags, *settings], " ".join(command.words)  # Hydra takes the flags first
    complaint = _complaint_about(overrides)
    if complaint is not None:
        return _refuse(f"{complaint}: foretail {named} --help lists what it takes.")
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra raises instead of printing and exiting
    before, sys.argv = sys.argv, [f"foretail {named}", *map(_without_credentials, overrides)]
    shows_settings = not {"--cfg", "-c", "--info", "-i"}.isdisjoint(overrides)
    try:
        if shows_settings:
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                application(command)()
            print(without_passwords(printed.getvalue()), end="")
        else:
            application(command)()
    except (yaml.YAMLError, RecursionError, ValueError) as error:  # StageFailed carries those of the stage
        if is_bad_input(error):
            raise
        from hydra._internal.utils import get_args_parser

        folder = get_args_parser().parse_args(overrides).config_dir
        raise unreadable_settings(error, folder) from error
    except OSError as error:  # StageFailed carries those of the stage past here: this one is Hydra's
        if is_bad_input(error):  # as that about a config that there is none of
            raise
        where = f"the run folder {error.filename or ''}".strip()
        raise ForetailError(f"cannot make {where} ({error.strerror or error}): set hydra.run.dir to another") from error
    finally:
        sys.argv = before
        if (sweep := sys.modules.get("foretail.pipelines.tracking.sweep")) is not None:
            sweep.Sweep.close()  # of a sweep that did not come to its end
    return 0


def _without_credentials(override: str) -> str:
    """The same setting; where it is a tracking store, its user and password are in the environment instead."""
    name, _, value = override.partition("=")
    if name.lstrip("+") != "tracking.uri" or "@" not in value:
        return override
    from hydra.core.override_parser.types import Quote, QuotedString

    from foretail.models.mlflow.store import tracking_uri

    quote = value[0] if value[0] == value[-1] and value[0] in "'\"" else ""
    plain = value[1:-1].replace(f"\\{quote}", quote) if quote else value
    return f"{name}={QuotedString(tracking_uri(plain, Path()), Quote.single).with_quotes()}"


def _help(stage: str, arguments: Sequence[str]) -> int:
    from foretail.pipelines.command.reference import experiments_text, help_text

    _, settings = _parted(arguments)
    overrides = [argument for argument in settings if "=" in argument]
    words = [argument for argument in settings if "=" not in argument]
    if stage != "run":
        command, _ = _command(stage, ())
        print(help_text(command, *STAGES[stage], overrides, words))
        return 0
    if not words:
        print(experiments_text(*STAGES[stage]))
        return 0
    from foretail.pipelines.experiment.catalog import listed

    command, overrides = _command(stage, [words[0], *overrides])  # type: ignore[assignment] # a list in both
    experiment = listed(words[0])
    print(help_text(command, experiment.description, experiment.example, overrides, words[1:]))
    return 0


def _run_command(command: str, arguments: Sequence[str]) -> int:
    with_arguments = {"ui": _ui, "verify": _verify, "completion": _completion}
    alone = {"features": _features, "zoo": _zoo, "doctor": _doctor}
    what, given = COMMANDS[command]
    code, wants_help = None, not {"--help", "-h"}.isdisjoint(arguments)
    if not wants_help and command in with_arguments:
        code = with_arguments[command](arguments)
    elif not arguments:
        code = alone[command]()
    if code is None:
        print(f"usage: foretail {command} {given}".rstrip() + f"\n\n{what}")
        return 0 if wants_help else EXIT_BAD_INPUT
    return code


def _ui(arguments: Sequence[str]) -> int | None:
    from foretail.pipelines.command.ui import USUAL_PORT, show_pages

    port = str(USUAL_PORT) if not arguments else arguments[1] if len(arguments) == 2 else ""
    if (arguments and arguments[0] != "--port") or not port.isdecimal():
        return None
    show_pages(Path.cwd(), int(port))


def _features() -> int:
    from foretail.pipelines.command.reference import features_table
    from foretail.pipelines.runs.result import show

    show([features_table()])
    return 0


def _zoo() -> int:
    from foretail.models import zoo
    from foretail.pipelines.runs.result import Table, show

    tagged = [{"rule": name, **asdict(one)} for name, one in zoo.sharing_rules().items()]
    note = "They spare the last packets of a message, which senders have to tag. foretail choose does not choose them."
    show(
        [
            Table.of_rows("Rules of the zoo", [one.row() for one in map(zoo.rule, zoo.names())], zoo.note()),
            Table.of_rows("Rules for TCP", tagged, note),
        ]
    )
    return 0


def _verify(paths: Sequence[str]) -> int | None:
    from foretail.pipelines.runs.result import show
    from foretail.pipelines.runs.verification import verify

    if not paths or paths[0].startswith("-"):
        return None
    verified = verify(paths)
    show([verified.table()])
    return 0 if verified.is_whole else EXIT_BAD_INPUT


def _doctor() -> int:
    from foretail.pipelines.command.doctor import examine, table
    from foretail.pipelines.runs.result import show

    findings = examine(Path.cwd())
    show([table(findings)])
    return EXIT_BAD_INPUT if any(finding.version is None and finding.needed for finding in findings) else 0


def _completion(arguments: Sequence[str]) -> int | None:
    from foretail.pipelines.command.reference import SCRIPTS, words

    if len(arguments) == 2 and arguments[0] == "words":  # what the script asks
        print("\n".join(words(arguments[1], tuple(COMMANDS))))
        return 0
    if len(arguments) != 1 or arguments[0] not in SCRIPTS:
        return None
    print(SCRIPTS[arguments[0]], end="")
    return 0


def _parted(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Flags with their values, and everything else."""
    flags: list[str] = []
    settings: list[str] = []
    for before, argument in zip(("", *arguments), arguments, strict=False):
        (flags if argument.startswith("-") or before in WITH_VALUE else settings).append(argument)
    return flags, settings


def _complaint_about(overrides: Sequence[str]) -> str | None:
    """Complaint of Hydra's own argument parser about the arguments, in a few words.

    ForetailError on a file of settings whose aliases have no end.
    """
    from hydra._internal.utils import get_args_parser  # the parser that @hydra.main uses; hydra-core is pinned

    from foretail.configs.plugins import check_scalars, check_sizes

    nameless = [override for override in _parted(overrides)[1] if override.startswith("=")]
    if nameless:
        return f"{nameless[0]} has no name: write name=value"
    usage_and_error = io.StringIO()
    try:
        with contextlib.redirect_stderr(usage_and_error):
            arguments = get_args_parser().parse_args(list(overrides))
    except SystemExit:
        return usage_and_error.getvalue().strip().rpartition("error: ")[2]
    if arguments.config_dir is not None:
        check_sizes(Path(arguments.config_dir))
        check_scalars(Path(arguments.config_dir))
    if arguments.experimental_rerun is not None:
        return "--experimental-rerun loads a pickle, which Foretail never does"
    return None


def _refuse(line: str) -> int:
    print(f"foretail: {printable(line)}", file=sys.stderr)
    return EXIT_BAD_INPUT


if __name__ == "__main__":
    sys.exit(main())
