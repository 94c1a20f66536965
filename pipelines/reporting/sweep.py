"""A sweep on its page: the table that its command printed, its verdict, and score against cost."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO

from matplotlib.figure import Figure

from foretail.models.scoring.figure_style import BLUE, GREY, panels, plain_ticks, styled
from foretail.pipelines.reporting.run_record import RunFigure, RunRecord
from foretail.pipelines.runs.result import Table
from foretail.pipelines.tracking.sweep import Job, sweep_table, sweep_verdict

CAPTION = "Score against what a model costs a switch: a dot is a job of the sweep, the large one the best."


def swept(runs: Sequence[RunRecord]) -> list[str]:
    """The overrides in which the commands of runs differ, in their order; none where a run did not write its own."""
    every = [run.overrides() for run in runs]
    names = dict.fromkeys(name for each in every for name in each)
    return [name for name in names if len({each.get(name) for each in every}) > 1] if all(every) else []


def sweep_of(runs: Sequence[RunRecord]) -> tuple[Table, list[str], RunFigure | None] | None:
    """The table, the verdict and the figure of the jobs of one sweep; None for other runs."""
    scores = {str(run.settings().get("tracking.best_by") or "") for run in runs}
    jobs = [Job.of(run.folder, run.document) for run in runs if run.overrides()]
    if len({(run.stage, run.folder.parent) for run in runs}) > 1 or len(scores) > 1 or "" in scores or not jobs:
        return None
    (score,) = scores
    points = [(job.leaves, value) for job in jobs if job.leaves and (value := job.score(score)) is not None]
    figure = None
    if len(points) > 1:
        content = BytesIO()
        _draw([float(leaves) for leaves, _ in points], [value for _, value in points], score).savefig(
            content, format="svg", metadata={"Date": None}
        )
        figure = RunFigure("sweep", "image/svg+xml", content.getvalue(), (), CAPTION)
    names = swept(runs)
    table = sweep_table(jobs, names, score)
    return Table(table.title, table.columns, table.rows), sweep_verdict(jobs, names, score), figure


@styled
def _draw(leaves: Sequence[float], scores: Sequence[float], score: str) -> Figure:
    figure, (axes,) = panels(1, inches=(6.4, 3.4))
    best = max(range(len(scores)), key=lambda place: scores[place])
    axes.plot(leaves, scores, "o", color=GREY, label="a job", markersize=4)
    axes.plot([leaves[best]], [scores[best]], "o", color=BLUE, label="the best", markersize=8)
    axes.set_xscale("log")
    plain_ticks(axes.xaxis)
    axes.set(xlabel="leaves of the model", ylabel=score)
    axes.legend()
    return figure
