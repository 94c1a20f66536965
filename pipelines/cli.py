"""The ``foretail`` command: ``foretail STAGE [overrides]``, and ``foretail verify PATH...``."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from types import FrameType

from foretail.features.errors import ForetailError
from foretail.pipelines.stages import STAGES  # Hydra, which takes a quarter of a second, is imported where a stage runs

UI, VERIFY = "ui", "verify"
COMMANDS = (UI, VERIFY)
"""What is no stage."""
USUAL_PORT = 5000
MULTIRUN = ("--multirun", "-m")
EXIT_DEFECT, EXIT_BAD_INPUT, EXIT_REFUSED, EXIT_INCOMPLETE, EXIT_INTERRUPTED, EXIT_TERMINATED = 1, 2, 3, 4, 130, 143


class Terminated(KeyboardInterrupt):
    """SIGTERM, cleaned up like Ctrl-C."""


def usage() -> str:
    """The text of ``foretail --help``."""
    width = max(map(len, STAGES))
    lines = ["usage: foretail STAGE [name=value ...] [--multirun] [--debug]", "", "stages:"]
    for stage, (what, example) in STAGES.items():
        lines += [f"  {stage:<{width}}  {what}", f"  {'':<{width}}    {example}"]
    lines += [
        f"  {UI:<{width}}  show the tracked runs of this folder: MLflow's pages on 127.0.0.1",
        f"  {'':<{width}}    foretail {UI} [--port {USUAL_PORT}]",
        f"  {VERIFY:<{width}}  tell whether folders, stores and tracking files are as Foretail wrote them",
        f"  {'':<{width}}    foretail {VERIFY} PATH...",
        "",
        "foretail STAGE --help lists the settings of a stage; foretail STAGE --cfg job prints them as they are used;",
        "--multirun sweeps over values given as name=a,b,c; --debug shows the traceback of an error.",
    ]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a stage; returns the exit code.

    0 done, 2 bad input, 3 a gate says no, 4 points of a sweep failed, 130 Ctrl-C, 143 SIGTERM, 1 a defect of Foretail.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in given
    given = [argument for argument in given if argument != "--debug"]
    if not given or given[0] in ("-h", "--help"):
        print(usage())
        return 0 if given else EXIT_BAD_INPUT
    stage, overrides = given[0], given[1:]
    if stage not in (*STAGES, *COMMANDS):
        return _refuse(f"unknown stage {stage}: choose from {', '.join((*STAGES, *COMMANDS))}.")
    from foretail.pipelines.stage import StageFailed

    try:
        with _terminable():
            run = {UI: _ui, VERIFY: _verify}.get(stage)
            return _run_stage(stage, overrides) if run is None else run(overrides)
    except KeyboardInterrupt as stop:
        if debug:
            traceback.print_exc()
        print("foretail: interrupted; only what is complete is kept.", file=sys.stderr)
        return EXIT_TERMINATED if isinstance(stop, Terminated) else EXIT_INTERRUPTED
    except StageFailed as failed:
        return _failed(failed.error, debug)
    except Exception as error:
        return _failed(error, debug)


def _failed(error: Exception, debug: bool) -> int:
    from foretail.pipelines.errors import GateRefused, PointsFailed, is_bad_input, sentence
    from foretail.pipelines.stage import setting_names

    if debug:
        traceback.print_exception(error)
    if is_bad_input(error):
        _refuse(sentence(error, setting_names()))
        if isinstance(error, PointsFailed):
            return EXIT_INCOMPLETE
        return EXIT_REFUSED if isinstance(error, GateRefused) else EXIT_BAD_INPUT
    text = " ".join(str(error).split())
    print(f"foretail: defect: {type(error).__name__}: {text}; --debug shows where.", file=sys.stderr)
    return EXIT_DEFECT


def _run_stage(stage: str, overrides: Sequence[str]) -> int:
    from foretail.pipelines.errors import is_bad_input
    from foretail.pipelines.stage import application

    sweeping = [argument for argument in overrides if argument in MULTIRUN]  # Hydra wants its flags first
    overrides = [*sweeping, *(argument for argument in overrides if argument not in MULTIRUN)]
    complaint = _complaint_about(overrides)
    if complaint is not None:
        return _refuse(f"{complaint}: foretail {stage} --help lists what it takes.")
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra raises instead of printing and exiting
    command, sys.argv = sys.argv, [f"foretail {stage}", *overrides]
    try:
        application(stage)()
    except OSError as error:  # StageFailed carries those of the stage past here: this one is Hydra's
        if is_bad_input(error):  # as that about a config that there is none of
            raise
        where = f"the run folder {error.filename or ''}".strip()
        raise ForetailError(f"cannot make {where} ({error.strerror or error}): set hydra.run.dir to another") from error
    finally:
        sys.argv = command
        if (sweep := sys.modules.get("foretail.pipelines.tracking.sweep")) is not None:
            sweep.Sweep.close()  # of a sweep that did not come to its end
    return 0


def _ui(arguments: list[str]) -> int:
    from pathlib import Path

    from foretail.pipelines.tracking.server import show_pages

    port = str(USUAL_PORT) if not arguments else arguments[1] if len(arguments) == 2 else ""
    if arguments[:1] not in ([], ["--port"]) or not port.isdecimal():
        print(f"usage: foretail {UI} [--port {USUAL_PORT}]: shows the runs tracked in outputs/mlflow.db")
        return 0 if "--help" in arguments or "-h" in arguments else EXIT_BAD_INPUT
    show_pages(Path.cwd(), int(port))
    return 0


def _verify(paths: Sequence[str]) -> int:
    from foretail.pipelines.runs.result import show
    from foretail.pipelines.runs.verification import verify

    if not paths or paths[0].startswith("-"):
        print(f"usage: foretail {VERIFY} PATH...: 0 = whole, {EXIT_BAD_INPUT} = damaged, missing or without a digest")
        return 0 if "--help" in paths or "-h" in paths else EXIT_BAD_INPUT
    found = verify(paths)
    show([found.table()])
    return 0 if found.is_whole else EXIT_BAD_INPUT


def _complaint_about(overrides: Sequence[str]) -> str | None:
    """What Hydra's own argument parser has against the arguments, in a few words."""
    from hydra._internal.utils import get_args_parser  # the parser that @hydra.main uses; hydra-core is pinned

    usage_and_error = io.StringIO()
    try:
        with contextlib.redirect_stderr(usage_and_error):
            arguments = get_args_parser().parse_args(list(overrides))
    except SystemExit:
        return usage_and_error.getvalue().strip().rpartition("error: ")[2]
    if arguments.experimental_rerun is not None:
        return "--experimental-rerun loads a pickle, which Foretail never does"
    return None


def _refuse(line: str) -> int:
    print(f"foretail: {line}", file=sys.stderr)
    return EXIT_BAD_INPUT


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM raises ``Terminated``, so that partial outputs are removed; only the main thread may set handlers."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise Terminated

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


if __name__ == "__main__":
    sys.exit(main())
