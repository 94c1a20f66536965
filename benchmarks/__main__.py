"""``python -m benchmarks [NAME ...] [--size small]``: run all benchmarks, or those named."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from benchmarks import (
    closed_loop,
    digest,
    emulator,
    export_c,
    export_p4,
    gym,
    native_speed,
    ns3_speed,
    open_loop,
    policies,
    schedule,
    tofino,
    tofino_features,
    training_rows,
)

BENCHMARKS: dict[str, Callable[[str], None]] = {
    module.__name__.rpartition(".")[2]: module.main
    for module in (
        closed_loop,
        digest,
        emulator,
        export_c,
        export_p4,
        gym,
        native_speed,
        ns3_speed,
        open_loop,
        policies,
        schedule,
        tofino,
        tofino_features,
        training_rows,
    )
}


def main(arguments: list[str]) -> int:
    """Run the benchmarks named in `arguments`, all without a name; exit code 2 for an unknown one."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BENCHMARKS))
    parser.add_argument("--size", choices=("small", "full"), default="full", help="small: seconds, to see that it runs")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.names if name not in BENCHMARKS]
    if unknown:
        print(f"error: no benchmark {unknown[0]!r}: choose from {', '.join(BENCHMARKS)}", file=sys.stderr)
        return 2
    for name in options.names or BENCHMARKS:
        BENCHMARKS[name](options.size)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
