"""The P4 target: plan, render, read back, prove, write."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np

from foretail.export.folder import CERTIFICATE, ENSEMBLE, check_folder, check_name, write_export
from foretail.export.p4.bmv2 import run_on_bmv2, tool_versions
from foretail.export.p4.cost import Plan, plan
from foretail.export.p4.demo import DemoSwitch, render_demo
from foretail.export.p4.interpreter import score
from foretail.export.p4.profile import load_profile
from foretail.export.p4.readback import read_back
from foretail.export.p4.reader import read_p4
from foretail.export.p4.render import render_p4
from foretail.export.p4.report import report_json, shrink
from foretail.export.p4.syntax import Program
from foretail.export.passes.passes import lower
from foretail.export.proof.equivalence import MAX_CELLS, Certificate, Lowered, ProofError, prove
from foretail.features.errors import ForetailError
from foretail.models.ensemble.cells import Cells
from foretail.models.ensemble.ensemble import Ensemble

__all__ = ["P4Export", "export_p4", "prove_p4"]

REPORT = "report.json"
PACKETS = 10_000

Entries = Literal["const", "runtime"]


@dataclass(frozen=True)
class P4Export:
    """The files of one export.

    Attributes
    ----------
    control : Path
        ``<name>.p4``: control DropPredictor, to be included.
    program : Path
        ``<name>_main.p4``: a program around it that runs.
    commands, updates : Path or None
        With runtime entries, for simple_switch_CLI and for P4Runtime.
    report, certificate, ir : Path
        Resources, what was proven, and the ensemble that was emitted.
    plan : Plan
    """

    control: Path
    program: Path
    commands: Path | None
    updates: Path | None
    report: Path
    certificate: Path
    ir: Path
    plan: Plan


def export_p4(
    model: Ensemble | Lowered,
    out_dir: Path,
    name: str = "drop_predictor",
    *,
    encoding: str = "auto",
    decision: str = "auto",
    entries: Entries = "const",
    profile: str = "v1model",
    demo: DemoSwitch | None = None,
    bmv2: bool = False,
    any_tau: bool = True,
    max_cells: int = MAX_CELLS,
) -> P4Export:
    """Plan, write and prove the P4 predictor of a model; nothing is written when it does not fit or prove.

    Parameters
    ----------
    ensemble : Ensemble or Lowered
        See :func:`lower`.
    out_dir : Path
        Created, or replaced when it holds an earlier export.
    name : str
        Prefix of files: a lower-case letter, then lower-case letters, digits and underscores.
    encoding : {'auto', 'range', 'lpm', 'ternary', 'exact'}
        Kind of all feature tables; ``auto`` takes the cheapest for each.
    decision : {'auto', 'leaf_rows', 'product', 'bitvector'}
        How code words become votes.
    entries : {'const', 'runtime'}
        In the program, or in files for the control plane.
    profile : str
        ``v1model``, ``rmt``, or the path of a YAML file.
    demo : DemoSwitch, optional
        Also write ``<name>_demo.p4``, this switch around the predictor; see :mod:`foretail.export.p4.demo`.
    bmv2 : bool
        Also compile the program with p4c and send it packets in BMv2, both on PATH: 10,000 random cells.
    any_tau, max_cells
        See :func:`lower`.

    Raises
    ------
    ProofError
        When the text differs from the model; the message names an input.
    ForetailError
        On an unsafe name, an unknown encoding or profile, or a model that does not fit the profile.
    """
    check_name(name)
    check_folder(out_dir)
    if entries not in ("const", "runtime"):
        raise ForetailError(f"the P4 entries are {entries!r}: choose const or runtime")
    lowered = lower(model, any_tau, max_cells)
    ensemble = lowered.ensemble
    chosen = plan(ensemble, load_profile(profile), encoding, decision, max_cells)
    if chosen.chosen.faults:
        raise ForetailError(
            f"the model is too large for the P4 profile {chosen.profile.name} ({'; '.join(chosen.chosen.faults)}): "
            f"{'; '.join(shrink(ensemble, chosen))}"
        )
    texts = render_p4(ensemble, chosen, name, entries)
    certificate = prove_p4(lowered, texts, name, max_cells)
    if bmv2:
        run_on_bmv2(ensemble, texts, name, Cells.of(ensemble).sample(PACKETS, np.random.default_rng(0)))
        certificate = replace(certificate, tool=f"{certificate.tool}; {tool_versions()}, {PACKETS} packets")
    report = report_json(ensemble, chosen)
    around = {} if demo is None else render_demo(ensemble, demo, name)
    files = {file: text.encode("ascii") for file, text in {**texts, **around, REPORT: report}.items()}
    write_export(out_dir, files, certificate, ensemble)
    commands, updates = out_dir / f"{name}.commands.txt", out_dir / f"{name}.entries.txtpb"
    return P4Export(
        control=out_dir / f"{name}.p4",
        program=out_dir / f"{name}_main.p4",
        commands=commands if commands.name in files else None,
        updates=updates if updates.name in files else None,
        report=out_dir / REPORT,
        certificate=out_dir / CERTIFICATE,
        ir=out_dir / ENSEMBLE,
        plan=chosen,
    )


def prove_p4(
    lowered: Lowered | Ensemble, texts: Mapping[str, str], name: str, max_cells: int = MAX_CELLS
) -> Certificate:
    """Read the rendered texts back and prove them equal to what was lowered, on all inputs.

    The program ``<name>_main.p4`` around the control is not part of the proof.
    """
    ensemble = Lowered.of(lowered).ensemble
    program = read_p4(texts[f"{name}.p4"], texts.get(f"{name}.commands.txt"), texts.get(f"{name}.entries.txtpb"))
    _check_interface(ensemble, program)
    return prove(
        lowered,
        target="p4",
        outputs={file: text.encode("ascii") for file, text in texts.items()},
        read={"tables": read_back(program, len(ensemble.trees))},
        runs={"interpreted": partial(score, program)},
        tool="interpreter of the emitted P4 subset, foretail.export.p4.interpreter",
        max_cells=max_cells,
    )


def _check_interface(ensemble: Ensemble, program: Program) -> None:
    if program.inputs != tuple(f"f_{f.name}" for f in ensemble.features) or program.default_tau != ensemble.default_tau:
        raise ProofError(
            "the exported P4 states other features or another tau: nothing is exported, report this as a bug"
        )
