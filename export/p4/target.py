"""The P4 target: match-action tables for v1model or TNA, planned by cost and read back from their text."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from foretail.core.errors import ForetailError
from foretail.export.folder import encoded
from foretail.export.p4.banks import bank_controls, plan_in, render_banks
from foretail.export.p4.bmv2 import run_on_bmv2, tool_versions
from foretail.export.p4.encoding import Frame
from foretail.export.p4.planning import most_trees, plan, report_json, shrink
from foretail.export.p4.profile import INPUT_BITS, load_profile
from foretail.export.p4.reading import TableScore, read_p4
from foretail.export.p4.text import CONTROL, render_p4
from foretail.export.proof import Lowered
from foretail.export.target import Files, Loaded, Rendered
from foretail.models.ensemble.cells import Cells
from foretail.models.ensemble.ensemble import Ensemble

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


REPORT = "report.json"
PACKETS = 10_000


@dataclass(frozen=True)
class P4:
    """The P4 target.

    Its files are ``<name>.p4``, the control, to be included; ``<name>_main.p4``, a program around it that runs, which
    is not part of the proof; and with runtime entries ``<name>.entries.txtpb`` for P4Runtime, and
    ``<name>.commands.txt`` for simple_switch_CLI or ``<name>.bfrt.json`` for Tofino's runtime. ``report.json`` has
    the resources of the plan.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from foretail.export.target import export
    >>> from foretail.models.drop.sharing_rule import SharingRule
    >>> rule = SharingRule(17, 229, 136, 176).ensemble(cell_bytes=256)
    >>> with TemporaryDirectory() as folder:
    ...     export(rule, P4(profile="v1model"), Path(folder) / "rule").file(".p4").name
    'drop_predictor.p4'
    """

    #: {'auto', 'range', 'ternary'}, kind of all feature tables; ``auto`` takes the cheapest for each
    encoding: str = "auto"
    decision: str = "auto"  #: {'auto', 'leaf_rows', 'product', 'groups'}, how code words become votes
    entries: Literal["const", "runtime"] = "const"  #: in the program, or in files for the control plane
    #: what the switch offers, and the architecture that the text is for: ``v1model``, ``tofino``, ``tofino2``, or the
    #: path of a YAML file
    profile: str = "v1model"
    #: also compile the program with p4c and send it packets in BMv2, both on PATH: 10,000 random cells
    bmv2: bool = False
    control: str = CONTROL  #: name of the control; a program that holds several predictors gives each its own
    #: also compile the program with p4c-barefoot, on PATH: stages and blocks of ``tofino`` or ``tofino2`` by its report
    compile: bool = False
    #: sizes of a program with two banks, into which a control plane swaps models: ``<name>_banks.p4`` and
    #: ``<name>_b.p4`` beside the first bank, with runtime entries of the model, which is over the frame's features
    frame: Frame | None = None
    bank: Literal["a", "b"] = "a"  #: that the entries are for
    max_rows: int | None = None  #: of all tables; None means no limit. A frame has its own
    name: ClassVar[str] = "p4"

    @property
    def _own_control(self) -> str:
        """Name of the control that the proof is about."""
        return self.control if self.frame is None else bank_controls(self.control)["ab".index(self.bank)]

    def render(self, lowered: Lowered, prefix: str, max_cells: int) -> Rendered:
        """Plan and write; ForetailError on an unknown setting, a wide input, or a model that does not fit."""
        if self.entries not in ("const", "runtime"):
            raise ForetailError(f"the P4 entries are {self.entries!r}: choose const or runtime")
        ensemble = lowered.ensemble
        for feature in ensemble.features:
            if feature.bits > INPUT_BITS:
                raise ForetailError(
                    f"feature {feature.name!r} has {feature.bits} bits, but an input of the P4 control is "
                    f"bit<{INPUT_BITS}>, as wide as a switch's features: choose target=c or target=onnx, or train on "
                    f"it in a coarser unit"
                )
        profile = load_profile(self.profile)
        if self.bmv2 and profile.arch != "v1model":
            raise ForetailError(
                f"there is a run in BMv2 for v1model only, but the P4 profile {profile.name} is for {profile.arch}: "
                f"leave it out, or choose another profile"
            )
        if self.bmv2 and self.frame is not None:
            raise ForetailError("there is a run in BMv2 for a program of one model, not for banks: leave one out")
        if self.compile and profile.name not in CHIPS:
            raise ForetailError(
                f"p4.compile is for the P4 profiles {' and '.join(CHIPS)}, not for {profile.name}: leave it out, or "
                f"choose one of them"
            )
        if self.frame is None:
            chosen = plan(ensemble, profile, self.encoding, self.decision, max_cells, self.max_rows)
        else:
            chosen = plan_in(ensemble, self.frame, profile)
        if chosen.chosen.faults:
            advice = shrink(lowered, chosen)
            if self.frame is not None:
                advice = ["make the banks smaller (banks.trees, banks.words)"]
            elif first := most_trees(ensemble, profile, self.encoding, self.decision, max_cells, self.max_rows):
                advice.append(f"its first {first} of {len(ensemble.trees)} trees fit")
            raise ForetailError(
                f"the model is too large for the P4 profile {chosen.profile.name} ({'; '.join(chosen.chosen.faults)}): "
                f"{'; '.join(advice)}"
            )
        around: dict[str, str] = {}
        if self.frame is not None and self.bank == "a":
            texts, around = render_banks(ensemble, chosen.tables, self.frame, prefix, self.control)
        else:
            runtime = self.entries == "runtime" or self.frame is not None
            texts = render_p4(ensemble, chosen.tables, prefix, runtime, self._own_control, self.frame)
        compiled = compile_for(profile.name, {**texts, **around}, prefix) if self.compile else None
        if compiled and profile.stages and compiled.stages > profile.stages:
            raise ForetailError(
                f"{COMPILER} places the model in {compiled.stages} stages, but {profile.name} has {profile.stages}: "
                f"export fewer trees"
            )
        report = report_json(lowered, chosen, asdict(compiled) if compiled else None)
        return Rendered(encoded(texts), encoded({**around, REPORT: report}), REPORT)

    def load(self, ensemble: Ensemble, files: Files) -> Loaded:
        """Read the tables back from the control and its entries, and require that nothing else is in the files."""
        texts = {file: content.decode("ascii", "replace") for file, content in files.items()}
        name = min(texts, key=len).removesuffix(".p4")
        score = TableScore(read_p4(ensemble, texts, name, self._own_control, self.frame))
        tool = "reader of the emitted tables, foretail.export.p4.reading"
        if self.bmv2:
            run_on_bmv2(ensemble, texts, name, Cells.of(ensemble).sample(PACKETS, np.random.default_rng(0)))
            tool += f"; {tool_versions()}, {PACKETS} packets"
        read = score.read_back(len(ensemble.trees), len(ensemble.features))
        return Loaded({"tables": read}, {"rows": score.score}, tool)
