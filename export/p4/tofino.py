"""Tofino's compiler: p4c-barefoot of p4lang/p4c places a program in a chip, and says what it takes.

It is in no package registry; ``docs/reports/tofino.md`` says how to build it.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foretail.core.errors import ForetailError

COMPILER = "p4c-barefoot"
CHIPS = ("tofino", "tofino2")
SECONDS = 600
"""Longest time for a compilation: a program that does not fit is tried in many ways."""


@dataclass(frozen=True)
class Compiled:
    """Resources of a chip that a program takes, by the compiler's own report."""

    compiler: str  #: and its version
    program: str  #: name of its file
    stages: int  #: up to the last that holds a table; may be more than the chip has
    tables: int  #: logical tables, the compiler's own included
    tcam_blocks: int
    sram_blocks: int  #: for matches, action data and what rows of a TCAM point at
    phv_bits: int  #: containers of the packet header vector that hold something


def command(chip: str) -> list[str]:
    """Return the command that compiles for a chip, up to its options and the program."""
    arch, number = ("tna", 1) if chip == "tofino" else ("t2na", 2)
    return [COMPILER, "--target", chip, "--arch", arch, f"-D__TARGET_TOFINO__={number}"]


def compile_for(chip: str, texts: Mapping[str, str], name: str) -> Compiled:
    """Compile ``<name>_switch.p4`` for TNA, or ``<name>_main.p4`` if there is none, and return what it takes.

    ForetailError when the compiler is not on PATH, refuses the program, or takes longer than ten minutes.

    Parameters
    ----------
    chip : {'tofino', 'tofino2'}
    texts : mapping of file names to texts, the program and what it includes
    name : str
    """
    if shutil.which(COMPILER) is None:
        raise ForetailError(f"{COMPILER} is not on PATH: build it (docs/reports/tofino.md)")
    version = subprocess.run([COMPILER, "--version"], capture_output=True, text=True, timeout=60, check=False)
    numbers = re.findall(r"\d+(?:\.\d+)+", version.stdout + version.stderr)
    switch = f"{name}_switch.p4"
    program = switch if switch in texts else f"{name}_main.p4"
    with tempfile.TemporaryDirectory() as folder:
        for file, text in texts.items():
            (Path(folder) / file).write_text(text, encoding="ascii")
        try:
            done = subprocess.run(
                [*command(chip), "-g", "-o", "out", program],
                cwd=folder,
                capture_output=True,
                text=True,
                timeout=SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise ForetailError(f"{COMPILER} takes more than {SECONDS} s for {name}: export fewer trees") from None
        if done.returncode:
            lines = (done.stdout + done.stderr).splitlines()
            reason = " ".join(" ".join([line for line in lines if "error" in line] or lines).split())
            raise ForetailError(f"{COMPILER} refuses {name} for {chip} ({reason[:300]}): export fewer trees")
        (resources,) = Path(folder, "out").glob("*/logs/resources.json")
        (containers,) = Path(folder, "out").glob("*/logs/phv.json")
        return _compiled(" ".join([COMPILER, *numbers[:1]]), program, _read(resources), _read(containers))


def _read(report: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))
    return document


def _compiled(version: str, program: str, resources: Mapping[str, Any], containers: Mapping[str, Any]) -> Compiled:
    stages = resources["resources"]["mau"]["mau_stages"]
    used = [stage["stage_number"] for stage in stages if stage["logical_tables"]["ids"]]
    return Compiled(
        version,
        program,
        max(used, default=-1) + 1,
        sum(len(stage["logical_tables"]["ids"]) for stage in stages),
        sum(len(stage["tcams"]["tcams"]) for stage in stages),
        sum(len(stage["rams"]["srams"]) for stage in stages),
        sum(container["bit_width"] for container in containers["containers"]),
    )
