"""The P4 target: plan, render, read back, prove, write."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from foretail.export.equivalence import Certificate, ProofError, prove
from foretail.export.folder import CERTIFICATE, ENSEMBLE, check_folder, check_name, write_export
from foretail.export.p4.cost import Plan, plan
from foretail.export.p4.profile import load_profile
from foretail.export.p4.reader import Program, read_p4
from foretail.export.p4.render import render_p4
from foretail.export.p4.report import report_json, report_text, shrink
from foretail.features.errors import ForetailError
from foretail.models.ensemble import Ensemble

__all__ = ["P4Export", "export_p4", "prove_p4"]

REPORT = "report.json"

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
    text : str
        The resource report, to print.
    """

    control: Path
    program: Path
    commands: Path | None
    updates: Path | None
    report: Path
    certificate: Path
    ir: Path
    plan: Plan
    text: str


def export_p4(
    ensemble: Ensemble,
    out_dir: Path,
    name: str = "drop_predictor",
    *,
    encoding: str = "auto",
    decision: str = "auto",
    entries: Entries = "const",
    profile: str = "v1model",
    model: Ensemble | None = None,
) -> P4Export:
    """Plan, write and prove the P4 predictor of an ensemble; nothing is written when it does not fit or prove.

    Parameters
    ----------
    ensemble : Ensemble
        What is emitted, with votes.
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
    model : Ensemble, optional
        As trained, before passes and votes; the proof then covers these as well.

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
    chosen = plan(ensemble, load_profile(profile), encoding, decision)
    if chosen.chosen.faults:
        raise ForetailError(
            f"the model is too large for the P4 profile {chosen.profile.name} ({'; '.join(chosen.chosen.faults)}): "
            f"{'; '.join(shrink(ensemble, chosen))}"
        )
    texts = render_p4(ensemble, chosen, name, entries)
    certificate = prove_p4(ensemble, texts, name, model)
    report = report_json(ensemble, chosen)
    files = {file: text.encode("ascii") for file, text in {**texts, REPORT: report}.items()}
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
        text=report_text(ensemble, chosen),
    )


def prove_p4(ensemble: Ensemble, texts: dict[str, str], name: str, model: Ensemble | None = None) -> Certificate:
    """Read the rendered texts back and prove them equal to the ensemble on all inputs.

    The program ``<name>_main.p4`` around the control is not part of the proof.
    """
    program = read_p4(texts[f"{name}.p4"], texts.get(f"{name}.commands.txt"), texts.get(f"{name}.entries.txtpb"))
    _check_interface(ensemble, program)
    return prove(
        ensemble,
        target="p4",
        outputs={file: text.encode("ascii") for file, text in texts.items()},
        read={"tables": program.read_back(len(ensemble.trees))},
        runs={"interpreted": program.score},
        tool="interpreter of the emitted P4 subset, foretail.export.p4.reader",
        model=model,
    )


def _check_interface(ensemble: Ensemble, program: Program) -> None:
    if program.inputs != tuple(f"f_{f.name}" for f in ensemble.features) or program.default_tau != ensemble.default_tau:
        raise ProofError(
            "the exported P4 states other features or another tau: nothing is exported, report this as a bug"
        )
