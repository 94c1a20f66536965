"""``foretail report``: one HTML page of a run or a sweep that needs nothing else to be read.

The page contains no script and loads nothing: figures are data URIs, and its Content-Security-Policy forbids the rest.
What comes from results is text, which the template escapes.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foretail.configs.schema.stages import ReportConfig
from foretail.core.files import write_file
from foretail.core.summary import Summarised
from foretail.pipelines.reporting.page import PAGE_FILE, render_page
from foretail.pipelines.reporting.run_record import RunRecord, find_runs
from foretail.pipelines.runs.result import Table


@dataclass(frozen=True, repr=False)
class ReportResult(Summarised):
    """A written page."""

    page: Path  #: its path
    page_bytes: int  #: its size
    runs: tuple[RunRecord, ...]  #: what it shows

    def document(self) -> dict[str, Any]:
        """Which results the page shows."""
        return {
            "page": self.page,
            "page_bytes": self.page_bytes,
            "runs": [{"folder": run.folder, "result_sha256": run.sha256} for run in self.runs],
        }

    def tables(self) -> list[Table]:
        """Tables of the page for every run."""
        rows = tuple(
            (str(run.folder), run.title, None if run.tables is None else len(run.tables), len(run.figures))
            for run in self.runs
        )
        notes = (f"page: {self.page}, {self.page_bytes:,} bytes",)
        return [Table("Report", ("run", "title", "tables", "figures"), rows, notes)]


def report(config: ReportConfig, run_dir: Path) -> ReportResult:
    """Read every run, then write the page; raises ForetailError, and leaves no page, when one cannot be shown."""
    given = [config.run] if isinstance(config.run, str) else config.run
    runs_of_folders = [find_runs(Path(folder)) for folder in given]
    runs = tuple(RunRecord.open(folder) for folders, _ in runs_of_folders for folder in folders)
    missing = [
        str(Path(folder) / name) for folder, (_, names) in zip(given, runs_of_folders, strict=True) for name in names
    ]
    page = Path(config.out) if config.out is not None else run_dir / PAGE_FILE
    text = render_page(runs, missing)
    write_file(page, text)
    return ReportResult(page, len(text.encode("utf-8")), runs)
