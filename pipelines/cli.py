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

VERIFY = "verify"
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
    stage, *overrides = given
    if stage not in (*STAGES, VERIFY):
        return _refuse(f"unknown stage {stage}: choose from {', '.join((*STAGES, VERIFY))}.")
    from foretail.pipelines.stage import StageFailed

    try:
        with _terminable():
            return _verify(overrides) if stage == VERIFY else _run_stage(stage, overrides)
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
