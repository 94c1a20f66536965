"""``foretail deploy``: put a model into a running switch, beside the one that decides, and let it decide."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretail.configs.schema.model_stages import DeployConfig
from foretail.core.errors import ForetailError, install_command
from foretail.core.summary import Summarised
from foretail.export.p4.banks import over
from foretail.export.p4.bmv2 import compile_p4
from foretail.export.p4.target import P4
from foretail.export.target import ExportResult, export
from foretail.models.ensemble.ensemble import Ensemble
from foretail.models.ensemble.model_files import Limits
from foretail.pipelines.exporting.predictor import NAME, frame_for
from foretail.pipelines.runs.notes import say
from foretail.pipelines.runs.result import Table
from foretail.pipelines.runs.store import Store
from foretail.pipelines.tracking.loading import load_model
from foretail.pipelines.tracking.runs import address, tracked

if TYPE_CHECKING:
    from foretail.export.p4.runtime import BankedSwitch, Decisions, P4RuntimeSwitch

ENTRIES = ".entries.txtpb"

MOST_TREES = 8
"""Trees of a program that nobody gave a size, unless the model has more."""


@dataclass(frozen=True)
class HeldModel:
    """Model in a bank."""

    bank: str  #: ``a`` or ``b``
    decides: bool
    tag: str | None  #: first eight hexadecimal digits of the model's hash; None: empty, or not whole
    tau: int  #: in units of the score
    rows: int


@dataclass(frozen=True, repr=False)
class DeployResult(Summarised):
    """Contents of a switch after the command, and the steps that were taken."""

    switch: str
    banks: tuple[HeldModel, ...]
    decisions: Decisions  #: since a bank was filled, or they were swapped
    steps: tuple[tuple[float, str], ...]  #: seconds since the connection, and what was done
    exported: str | None  #: folder of the proven rows
    tracked: Mapping[str, Any] | None  #: the run in MLflow

    def document(self) -> dict[str, Any]:
        """Every figure, JSON-like."""
        decisions = {**asdict(self.decisions), "packets": self.decisions.packets}
        return {
            "switch": self.switch,
            "banks": [asdict(bank) for bank in self.banks],
            "decisions": decisions,
            "steps": [{"seconds": seconds, "step": step} for seconds, step in self.steps],
            "exported": self.exported,
            "tracked": self.tracked,
        }

    def verdict(self) -> list[str]:
        """Which model decides, and how often the other one would have decided otherwise."""
        live = next(bank for bank in self.banks if bank.decides)
        decisions, differ = self.decisions, self.decisions.other_drops + self.decisions.live_drops
        deciding = "No model decides" if live.tag is None else f"Model {live.tag} decides"
        return [
            f"{deciding} at {self.switch}, in bank {live.bank}.",
            f"The other bank differed on {differ:,} of {decisions.packets:,} packets.",
        ]

    def tables(self) -> list[Table]:
        """Banks, decisions and steps."""
        banks = [
            (bank.bank, "yes" if bank.decides else "no", bank.tag or "none", bank.tau, bank.rows) for bank in self.banks
        ]
        counts = self.decisions
        counted = (
            ("accept", "accept", counts.both_accept),
            ("accept", "drop", counts.other_drops),
            ("drop", "accept", counts.live_drops),
            ("drop", "drop", counts.both_drop),
        )
        shown = [Table("Banks", ("bank", "decides", "model", "tau", "rows"), tuple(banks))]
        shown.append(Table("Packets by decision", ("live bank", "other bank", "packets"), counted))
        if self.steps:
            shown.append(Table("Steps", ("s", "step"), tuple((round(s, 3), step) for s, step in self.steps)))
        return shown


def deploy(config: DeployConfig, run_dir: Path) -> DeployResult:
    """Do what the settings say to the switch, and record it; the model that decides stays until all else is done."""
    try:
        from foretail.export.p4.runtime import BANKS, BankedProgram, BankedSwitch, P4RuntimeSwitch, tag_of
    except ImportError:
        raise ForetailError(f"deploy needs the package finsy: {install_command('deploy')}") from None
    store = Store(config.store_dir)
    model = None
    if config.model is not None:
        model = load_model(config.model, config.tracking, store, limits=Limits(**vars(config.model_limits)))
    steps: list[tuple[float, str]] = []
    folder = None
    changes = model is not None or config.rollback
    run = tracked(config.tracking, store, asdict(config), f"deploy to {config.switch}")
    with (
        P4RuntimeSwitch(config.switch, config.device_id) as client,
        run if changes and config.tracking.enabled else nullcontext() as record,
    ):
        started = time.monotonic()

        def report(step: str) -> None:
            steps.append((time.monotonic() - started, step))

        if model is not None and config.program:
            report(_put_program(client, model, config, run_dir / "program"))
        info = client.program()
        if info is None:
            raise ForetailError(
                f"the switch at {config.switch} has no program: put one onto it (model=... program=true)"
            )
        switch = BankedSwitch(client, BankedProgram.of(info, config.control), config.drain_ms / 1000, report)
        if model is not None:
            folder = _install(switch, model, tag_of(model.sha256), config, run_dir)
        elif config.rollback:
            switch.flip()
        live, decisions = switch.live(), switch.decisions()
        banks = tuple(
            HeldModel(
                name,
                index == live.bank,
                f"{live.tags[index]:08x}" if live.tags[index] else None,
                switch.tau(index),
                len(switch.rows(index)),
            )
            for index, name in enumerate(BANKS)
        )
        if record is not None:
            held = {f"bank_{bank.bank}": bank.tag or "none" for bank in banks}
            record.set_tags({"switch": config.switch, "live_bank": BANKS[live.bank], **held})
            record.log_metrics({name: float(count) for name, count in asdict(decisions).items()})
    if not live.tags[live.bank]:
        say(f"the bank that decides at {config.switch} contains no model: it accepts every packet")
    return DeployResult(
        config.switch, banks, decisions, tuple(steps), folder, None if record is None else address(record)
    )


def _install(switch: BankedSwitch, model: Ensemble, tag: int, config: DeployConfig, run_dir: Path) -> str:
    """Fill the bank that does not decide, and unless it is a canary let it decide; returns the folder of the proof."""
    from foretail.export.p4.runtime import BANKS

    live, frame = switch.live(), switch.program.frame

    def exported(bank: int) -> ExportResult:
        target = P4(control=config.control, frame=frame, bank=BANKS[bank])
        return export(over(model, frame), target, run_dir / f"bank_{BANKS[bank]}", NAME, any_tau=config.any_tau)

    bank, again = live.other, False
    if live.tags[live.bank] == tag:  # the live one, perhaps; then at most its tau is turned
        done = exported(live.bank)
        again = switch.holds(live.bank, done.file(ENTRIES).read_text(), tag)
        bank = live.bank if again else live.other
    if not again:
        done = exported(bank)
    own = done.ensemble.require_votes()[1]
    tau = own if config.tau is None else config.tau
    if tau != own and not config.any_tau:
        raise ForetailError(f"any_tau=false is for tau {own} alone: leave tau out, or any_tau")
    if again:
        if config.canary:
            raise ForetailError(f"the model decides already, in bank {BANKS[bank]}: a canary is another model")
        if switch.tau(bank) != tau:
            switch.set_tau(bank, tau)
            switch.report(f"tau of bank {BANKS[bank]} is {tau}")
        return done.folder.name
    if not switch.fill(bank, done.file(ENTRIES).read_text(), tau, tag):
        switch.report(f"bank {BANKS[bank]} holds the model already")
    if not config.canary:
        switch.flip()
    return done.folder.name


def _put_program(client: P4RuntimeSwitch, model: Ensemble, config: DeployConfig, folder: Path) -> str:
    """Compile a program with banks for the features of a model, and put it onto the switch; returns what was done."""
    from finsy.proto import p4i
    from google.protobuf import text_format

    frame = frame_for(model, config.banks.trees or max(MOST_TREES, len(model.trees)), config.banks)
    done = export(model, P4(control=config.control, frame=frame), folder, NAME)
    info = folder / f"{NAME}.p4info.txtpb"
    compiled = compile_p4(done.file("_main.p4"), info)
    client.set_program(text_format.Parse(info.read_text(), p4i.P4Info()), compiled.read_bytes())
    return f"program with room for {frame.described()}"
