"""``python -m benchmarks [NAME ...]``: run all benchmarks, or those named."""

from __future__ import annotations

import sys

from benchmarks import ns3_speed, open_loop, policies

BENCHMARKS = {"ns3_speed": ns3_speed.main, "open_loop": open_loop.main, "policies": policies.main}


def main(names: list[str]) -> int:
    """Run the benchmarks called `names`, all without a name; exit code 2 for an unknown one."""
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        print(f"error: no benchmark {unknown[0]!r}: choose from {', '.join(BENCHMARKS)}", file=sys.stderr)
        return 2
    for name in names or BENCHMARKS:
        BENCHMARKS[name]()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
