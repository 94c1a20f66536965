"""One reader under one engine, in a process of its own: ``python -m tests.fuzz.one NAME FOLDER SECONDS SEED``.

SECONDS 0 stands for the reader's number of inputs, but at most ``MOST_SECONDS``; the same seed tries the same inputs.

Prints one line of JSON at the end. An input that a reader answers with anything but a result or a ForetailError of one
line is kept as ``finding-*`` in FOLDER, with the traceback behind it in a file of the same name and ``.txt``.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import importlib
import json
import os
import random
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType, FunctionType

MOST_SECONDS = 8
"""Of a reader whose number of inputs is set."""
FORK_SECONDS, FORK_BYTES = 5, 8 << 30
"""CPU time and address space of a forked reader; beyond them the door's sandbox says so."""


def main() -> int:
    """Fuzz one reader; 0 = nothing found, 1 = something was, which lies in the folder."""
    name, folder, seconds, seed = sys.argv[1], Path(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
    folder.mkdir(parents=True, exist_ok=True)
    if os.environ.get("FORETAIL_FUZZ_CHILD") is None:
        return watched(folder)
    warnings.simplefilter("ignore")  # of other people's parsers; a reader's own would be an answer too
    from tests.fuzz.readers import READERS

    # readers that stand on other people's native code run in forks
    return (forked if READERS[name].native else guided)(name, folder, seconds, seed)


def watched(folder: Path) -> int:
    """Do the work in a child and read what it printed, for atheris ends its process itself."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.one", *sys.argv[1:]],
        env=os.environ | {"FORETAIL_FUZZ_CHILD": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    (folder / "engine.log").write_text(done.stdout)
    if (lines := done.stdout.splitlines()) and lines[-1].startswith('{"engine"'):  # forks print their own summary
        print(lines[-1])
        return done.returncode
    runs = re.findall(r"^(?:#|stat::number_of_executed_units: |Done )(\d+)", done.stdout, re.MULTILINE)
    edges = re.findall(r"\bcov: (\d+)", done.stdout)
    found = sorted(path.name for path in folder.glob("finding-*"))
    if done.returncode and not found:
        found = ["engine.log"]
    if not edges:
        print(done.stdout[-2000:], file=sys.stderr)
        return 2
    print(json.dumps(summary("atheris", max(map(int, runs)), int(edges[-1]), found)))
    return 1 if found else 0


def guided(name: str, folder: Path, seconds: float, seed: int) -> int:
    """Let atheris look for new coverage in Foretail's Python; it ends this process."""
    import atheris

    from tests.fuzz import readers

    reader = readers.READERS[name]
    place = folder / "read"
    place.mkdir(exist_ok=True)
    write_seeds(reader.seeds, folder)

    def one(data: bytes) -> None:
        write_new(place / reader.file, data)
        judge(reader.read, place / reader.file, data, folder)

    # atheris' own import hook does not see modules of an editable install, and all of them take seconds
    modules = modules_that_read([path.read_bytes() for path in sorted((folder / "corpus").iterdir())], one, seed)
    functions = [each for each in gc.get_objects() if isinstance(each, FunctionType) and each.__module__ in modules]
    for function in sorted(functions, key=lambda each: (each.__module__, each.__qualname__)):
        atheris.instrument_func(function)

    limits = [
        f"-max_total_time={int(seconds) or MOST_SECONDS}",
        f"-runs={-1 if seconds else reader.inputs}",
        "-max_len=65536",
        "-timeout=60",
        "-report_slow_units=60",
        "-rss_limit_mb=8192",
        f"-artifact_prefix={folder}/finding-",
    ]

    def mutate(data: bytes, most: int, drawn: int) -> bytes:
        random_ = random.Random(drawn)  # libFuzzer's own changes rarely leave JSON or a table readable
        return mutated(data, random_)[:most] if drawn % 2 else atheris.Mutate(data, most)

    atheris.Setup(
        [sys.argv[0], *limits, f"-seed={seed}", "-print_final_stats=1", str(folder / "corpus")],
        one,
        custom_mutator=mutate,
    )
    atheris.Fuzz()
    return 0


def modules_that_read(seeds: Sequence[bytes], one: Callable[[bytes], None], seed: int) -> set[str]:
    """Foretail's modules with a function that is called for the seeds and some mutations of them."""
    found = set()

    def note(frame: FrameType, event: str, argument: object) -> None:
        found.add(frame.f_globals.get("__name__", ""))

    drawn = random.Random(seed)
    sys.setprofile(note)
    try:
        for content in seeds:
            one(content)
            for _ in range(20):
                one(mutated(content, drawn))
    finally:
        sys.setprofile(None)
    return {module for module in found if module.startswith("foretail.")}


def forked(name: str, folder: Path, seconds: float, seed: int) -> int:
    """Read mutations of the seeds, each in a fork; a signal there is the parser's, and contained."""
    from tests.fuzz.readers import READERS

    reader = READERS[name]
    place = folder / "read"
    place.mkdir(exist_ok=True)
    seeding = os.fork()  # training starts threads, which no fork after it would have
    if seeding == 0:
        write_seeds(reader.seeds, folder)
        os._exit(0)
    os.waitpid(seeding, 0)
    seeds = [path.read_bytes() for path in sorted((folder / "corpus").iterdir())]
    for module in reader.native:
        importlib.import_module(module)
    drawn = random.Random(seed)
    counts = {"read": 0, "refused": 0, "ended by a signal": 0, "findings": 0}
    end = time.monotonic() + (seconds or MOST_SECONDS)
    while time.monotonic() < end and (seconds or sum(counts.values()) < reader.inputs):
        data = mutated(drawn.choice(seeds), drawn)
        write_new(place / reader.file, data)
        child = os.fork()
        if child == 0:
            os._exit(in_fork(reader.read, place / reader.file, data, folder))
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status):
            counts["ended by a signal"] += 1
        else:
            counts[("read", "refused", "findings")[os.WEXITSTATUS(status)]] += 1
    found = sorted(path.name for path in folder.glob("finding-*.txt"))
    print(json.dumps(summary("fork", sum(counts.values()), None, found) | {"counts": counts}))
    return 1 if found else 0


def in_fork(read: Callable[[Path], object], path: Path, data: bytes, folder: Path) -> int:
    """The exit status of a fork: 0 read, 1 refused, 2 something else."""
    with Path(os.devnull).open("w") as nothing:
        os.dup2(nothing.fileno(), 1)
        os.dup2(nothing.fileno(), 2)
    resource.setrlimit(resource.RLIMIT_CPU, (FORK_SECONDS, FORK_SECONDS + 1))
    resource.setrlimit(resource.RLIMIT_AS, (FORK_BYTES, FORK_BYTES))
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return judge(read, path, data, folder)


def judge(read: Callable[[Path], object], path: Path, data: bytes, folder: Path) -> int:
    """Read a file; keep the input when the answer is neither a result nor one sentence."""
    from foretail.core.errors import ForetailError

    try:
        with contextlib.redirect_stdout(None), contextlib.redirect_stderr(None):
            read(path)
    except ForetailError as error:
        if str(error).strip() and "\n" not in str(error):
            return 1
        reason = f"not one line: {str(error)!r}"
    except Exception:
        reason = traceback.format_exc()
    else:
        return 0
    where = [line for line in reason.splitlines() if line.startswith("  File")][-1:] or [reason]
    kept = folder / f"finding-{hashlib.sha256(where[0].encode()).hexdigest()[:12]}"  # one for each place
    kept.write_bytes(data)
    kept.with_name(f"{kept.name}.txt").write_text(reason)
    return 2


def write_new(path: Path, data: bytes) -> None:
    """Write a file that was not there: ext4 waits for the disk when a file is cut and written again."""
    path.unlink(missing_ok=True)
    path.write_bytes(data)


def mutated(content: bytes, drawn: random.Random) -> bytes:
    """One to eight changes of bytes, numbers, words and pieces."""
    data = bytearray(content)
    for _ in range(drawn.choice((1, 1, 1, 2, 4, 8))):
        at = drawn.randrange(len(data) + 1)
        size = drawn.choice((1, 1, 2, 4, 8, 64, 1024))
        kind = drawn.randrange(6)
        if kind == 0 and at < len(data):
            data[at] ^= 1 << drawn.randrange(8)
        elif kind == 1:
            data[at : at + size] = drawn.randbytes(size)
        elif kind == 2:
            del data[at : at + size]
        elif kind == 3:
            piece = drawn.randrange(len(data) + 1)
            data[at:at] = data[piece : piece + size]
        elif kind == 4:
            numbers = list(re.finditer(rb"-?\d[\d.eE+-]*", data))
            if numbers:
                place = drawn.choice(numbers)
                data[place.start() : place.end()] = drawn.choice(
                    (b"0", b"-1", b"1e400", b"NaN", b"2147483648", b"18446744073709551616", b"0.1", b'"a"', b"null")
                )
        else:
            width = drawn.choice((1, 2, 4, 8))
            data[at : at + width] = drawn.choice((0, 1, 2 ** (8 * width - 1), 2 ** (8 * width) - 1)).to_bytes(
                width, "little"
            )
    return bytes(data)


def summary(engine: str, runs: int, edges: int | None, findings: list[str]) -> dict[str, object]:
    """What is printed of a reader."""
    return {"engine": engine, "runs": runs, "edges": edges, "findings": findings}


def write_seeds(seeds: Callable[[Path], Sequence[bytes]], folder: Path) -> None:
    """Put the contents to begin from into the corpus."""
    with tempfile.TemporaryDirectory() as empty:
        contents = seeds(Path(empty))
    (folder / "corpus").mkdir(exist_ok=True)
    for number, content in enumerate(contents):
        (folder / "corpus" / f"seed-{number}").write_bytes(content)


if __name__ == "__main__":
    sys.exit(main())
