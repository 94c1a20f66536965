"""The model card: what a drop predictor was made from, what it scored, what it costs and where it does not hold.

Every figure comes from a document that a run wrote; names from data are escaped, so that they stay text in Markdown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jinja2

from foretail.core.errors import ForetailError
from foretail.core.json_text import flat
from foretail.export.folder import environment
from foretail.features.catalog import feature
from foretail.models.ensemble.ensemble import Ensemble
from foretail.models.scoring.metrics import SHOWN
from foretail.pipelines.runs.notes import ASKED, LABELLED_QUEUES
from foretail.pipelines.runs.result import Table
from foretail.pipelines.training.fitting import score_rows
from foretail.sim_bridge.open_loop.scores import SENT

CARD_FILE = "model_card.md"
DATASET_COLUMNS = {
    **{name: name for name in ("side", "scenario", "load", "seed", "policy")},
    "start_ns": "from ns",
    "end_ns": "to ns",
    **{name: name for name in ("rows", "drops")},
    "content_sha256": "SHA-256 of the rows",
}
"""Entries of a card on a dataset, and their columns."""
_OF_BASELINE = ("title", "sent_percent_of_lqd", "recovered_loss")
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>|~&$])")


class Markdown(str):
    """Text that is Markdown already."""


def model_card(document: Mapping[str, Any]) -> str:
    """Return the card as Markdown.

    `document` has ``model`` (name, alias, ensemble), ``lineage``, ``config`` and ``outcome`` of the training run,
    ``gate`` and ``held_out`` of the promotion; see :mod:`foretail.pipelines.stages.promote`. ForetailError
    when the training run wrote its outcome in other words, as another version of Foretail does.
    """
    try:
        return _render(document)
    except (KeyError, jinja2.UndefinedError) as error:
        raise ForetailError(
            f"the outcome of run {document['lineage']['runs'][0]} is that of another version of Foretail ({error}): "
            f"train the model again"
        ) from error


def _render(document: Mapping[str, Any]) -> str:
    outcome, config = document["outcome"], document["config"]
    runs, datasets = held_out_table(document["held_out"]), outcome["datasets"]
    shown = ({**item, "seed": str(item["seed"])} for item in datasets)  # a seed is no amount
    return (
        environment("foretail.pipelines.promotion", ".", finalize=markdown)
        .get_template("model_card.md.j2")
        .render(
            **document,
            **_gate_tables(document),
            beside=(outcome["replay"] or {}).get("baselines", ()),
            inputs=_table(
                ("feature", "meaning", "unit", "bits", "constants", "trained on the column"),
                (
                    (item["name"], feature(item["name"]).description, _unit(item), item["bits"], item["params"], column)
                    for item, column in zip(outcome["features"], outcome["columns"], strict=True)
                ),
            ),
            data=_table(tuple(DATASET_COLUMNS.values()), ([item[name] for name in DATASET_COLUMNS] for item in shown)),
            parameters=_pairs(("parameter", "value"), outcome["parameters"]),
            operating_point=_pairs(("setting", "value"), config["operating_point"]),
            scores=_table(("side", "region", "rows", "drops", *SHOWN), score_rows(outcome["scores"])),
            runs=_table(runs.columns, runs.rows),
            tuned=any(check["name"] == "tuned_baseline" for check in document["gate"]["checks"]),
            constants=sorted({item["params"] for item in outcome["features"] if item["params"]}),
            switches=_table(
                ("ports", "shared buffer, bytes"),
                sorted({tuple(switch) for item in datasets for switch in item["switches"]}),
            ),
            rules=_table(
                tuple(datasets[0]["rules"]), dict.fromkeys(tuple(item["rules"].values()) for item in datasets)
            ),
            own_queues=[
                item["name"]
                for item, column in zip(outcome["features"], outcome["columns"], strict=True)
                if feature(item["name"]).state == "real" and column == item["name"]
            ],
            caveats={key: value for item in datasets for key, value in item["caveats"].items()},
            versions=_pairs(("package", "version"), outcome["versions"]),
        )
    )


def short_card(document: Mapping[str, Any], model: Ensemble, runs: Table) -> str:
    """Return the card of a model of whose training nothing is known but the runs, as Markdown.

    `document` is that of :func:`model_card` without ``config`` and ``outcome``, `runs` are the held-out runs.
    """
    return (
        environment("foretail.pipelines.promotion", ".", finalize=markdown)
        .get_template("short_card.md.j2")
        .render(
            **document,
            **_gate_tables(document),
            inputs=_table(
                ("feature", "meaning", "unit", "bits", "constants"),
                (
                    (item.name, feature(item.name).description, feature(item.name).unit, item.bits, item.params)
                    for item in model.features
                ),
            ),
            runs=_table(runs.columns, runs.rows),
            notes=runs.notes,
        )
    )


def held_out_table(runs: Sequence[Mapping[str, Any]]) -> Table:
    """The held-out runs of a promotion's document, a row each: scores of the model and of the present holder."""
    shown = ("asked_f1", "sent", "recovered_loss")
    return Table(
        "Held-out runs",
        (
            *("scenario", "seed", "rows", "drops", "asked F1", "holder's", SENT, "holder's"),
            *("recovered loss", "holder's", "tuned policy", SENT, "recovered loss"),
        ),
        tuple(
            (
                run["scenario"],
                str(run["seed"]),
                run["rows"],
                run["drops"],
                *(run[who] and run[who][name] for name in shown for who in ("candidate", "holder")),
                *(best[key] for best in run["candidate"]["baselines"][:1] for key in _OF_BASELINE),
            )
            for run in runs
        ),
        (ASKED, f"F1 is on {LABELLED_QUEUES}; all else is sent while the model decides"),
    )


def markdown(value: Any) -> Any:
    """Return a value as one line of Markdown: text is escaped, numbers are written for readers, None is a dash."""
    if isinstance(value, Markdown):
        return value
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return _SPECIAL.sub(r"\\\1", " ".join(str(value).split()))


def _gate_tables(document: Mapping[str, Any]) -> dict[str, Any]:
    """Tables of every card: what the model was given, the gate's checks, and what its exports cost."""
    checks, given = document["gate"]["checks"], document["lineage"]["datasets"]
    costs = {check["name"]: check["figures"] for check in checks if check["figures"] is not None}
    return {
        "given": _table(
            ("dataset", "for", "SHA-256 of the rows"),
            ((item["name"], item["context"], item["content_sha256"]) for item in given),
        ),
        "checks": _table(("check", "passed", "found"), ((one["name"], one["passed"], one["reason"]) for one in checks)),
        "exports": {
            target: _pairs(("figure", "value"), dict(flat(figures, between=" "))) for target, figures in costs.items()
        },
    }


def _table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Markdown:
    lines = [columns, ["---"] * len(columns), *rows]
    cells = [[Markdown(c) if c == "---" and number == 1 else c for c in line] for number, line in enumerate(lines)]
    return Markdown("\n".join(f"| {' | '.join(markdown(cell) for cell in line)} |" for line in cells))


def _pairs(columns: Sequence[str], pairs: Mapping[str, Any]) -> Markdown:
    return _table(columns, pairs.items())


def _unit(item: Mapping[str, Any]) -> str:
    """The unit of an input: imported rows say theirs in the constants."""
    return "bytes" if "unit=bytes" in item["params"] else feature(item["name"]).unit
