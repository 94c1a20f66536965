"""The page of a run: whole, safe and readable whatever the results hold; and what is refused in one sentence."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretail.core.errors import printable
from foretail.features.catalog import FEATURES
from foretail.pipelines import cli
from foretail.pipelines.comparison.cost import RunCost
from foretail.pipelines.comparison.flows import FlowsResult
from foretail.pipelines.comparison.policy_runs import PolicyRun
from foretail.pipelines.comparison.statistics import FLOW_GROUPS, FlowSummary
from foretail.pipelines.promotion.model_card import CARD_FILE
from foretail.pipelines.promotion.promoting import Check, PromoteResult
from foretail.pipelines.reporting.page import glossary, render_page, stacked, varied
from foretail.pipelines.reporting.run_record import RunRecord, find_runs
from foretail.pipelines.runs.result import Table, write_result
from foretail.pipelines.stages.replay import ReplayResult, Source
from foretail.sim_bridge.open_loop.scores import Comparison, worth_in_words
from tests.composed import foretail, result_in
from tests.examples import draws
from tests.forests import paper_forest
from tests.reports import EVIL, Page, check_page, document, opened, run_folder

pytestmark = pytest.mark.slow


def test_a_page_shows_all_that_a_run_left(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run")
    page = check_page(render_page([opened(folder)]))
    assert page.text("h1") == "Report: foretail promise small"
    assert "foretail run promise size=small" in page.text("code")
    assert "2026-01-02 03:04:05 UTC" in page.text("p")
    assert "A note." in page.text("p")
    assert [value["value"] for value in page.of("data")] == ["0.123456789012345", "1234567", "12.5"]
    assert "0.1235" in page.text("data")
    (image,) = page.of("img")
    assert image["src"].startswith("data:image/svg+xml;base64,")
    assert image["alt"] == "scores by seed, a figure of foretail promise small."
    assert "Its numbers: scores_by_seed.csv." in page.text("span")
    assert "Predictor ours" in page.text("h3")
    cells = page.text("td", "th")
    assert all(word in cells for word in ("queue", "[1, 2]", "a" * 64, "3.11.7", "study.small.seed"))
    assert "study.full.seed" not in cells
    assert hashlib.sha256((folder / "result.json").read_bytes()).hexdigest() in cells
    assert "study.full.seed: 8" in page.text("code")


def test_tracked_runs_are_links_without_passwords(tmp_path: Path) -> None:
    text = render_page([opened(run_folder(tmp_path / "run"))])
    assert "secret" not in text
    (link,) = check_page(text).of("a")
    assert link["href"] == f"http://tracking.example:5000/#/experiments/3/runs/{'f' * 32}"
    tracked = {"run_id": "e" * 32, "experiment_id": "1", "uri": "sqlite:////home/me/mlflow.db"}
    page = check_page(render_page([opened(run_folder(tmp_path / "file", candidates={"tracked": tracked}))]))
    assert page.of("a") == []
    assert "e" * 32 in page.text("td")
    assert "sqlite:///…/me/mlflow.db" in page.text("td")
    script = tracked | {"uri": "javascript:alert(1)//"}
    page = check_page(render_page([opened(run_folder(tmp_path / "script", candidates={"tracked": script}))]))
    assert page.of("a") == []


def test_names_from_data_stay_text(tmp_path: Path) -> None:
    name = "<script>alert(1)<"
    folder = run_folder(
        tmp_path / "<b onclick=alert(1)>",
        command=f"foretail run {EVIL}",
        finished=EVIL,
        versions={EVIL: EVIL},
        config={EVIL: {"seed": EVIL, EVIL: [EVIL]}},
        candidates={EVIL: {"scenario": EVIL, "content_sha256": EVIL, EVIL: {"run_id": EVIL, "uri": f"http://{EVIL}"}}},
        tables=[Table(EVIL, (EVIL, "n"), ((EVIL, 1), (EVIL, EVIL)), (EVIL,))],
        files=[f"{name}.svg"],
    )
    (folder / "scores_by_seed.svg").rename(folder / f"{name}.svg")
    (folder / "champion" / CARD_FILE).write_text(
        f"# {EVIL}\n\n{EVIL}\n\n[click](javascript:alert(1)) ![pixel](http://evil.example/p) <http://evil.example>\n\n"
        f"[ref]: http://evil.example\n\n[ref]\n\n| a |\n| --- |\n| {EVIL} |\n\n<div onclick=x>block</div>\n"
    )
    other = run_folder(tmp_path / "other", config={EVIL: {"seed": "2", EVIL: []}})
    for runs in ([folder], [folder, other]):
        page = check_page(render_page([opened(run) for run in runs], [EVIL]))
        assert page.text("td").count("<script>alert('x')</script>") > 3
        assert "<script>alert('x')</script>" in page.text("code")
        assert "javascript:alert(1)" in page.text("p")
        tracked = f"http://tracking.example:5000/#/experiments/3/runs/{'f' * 32}"
        assert {link["href"] for link in page.of("a")} <= {"#run-1", "#run-2", tracked}


def test_a_page_opens_with_the_verdict_and_a_figure(tmp_path: Path) -> None:
    said = {
        "verdict": ["LQD is best.", "Predictions change nothing [-1, +1]."],
        "captions": {"scores_by_seed": "F1 where Credence asked, by seed."},
    }
    page = check_page(render_page([opened(run_folder(tmp_path / "run", **said))]))
    ((_, first), (_, second)) = [found for found in page.elements if found[0] in ("p", "img")][:2]
    assert first == {"class": "verdict"}
    assert second["alt"] == "F1 where Credence asked, by seed."
    meant = {abbreviation["title"] for abbreviation in page.of("abbr")}
    assert {glossary(False)["LQD"], glossary(False)["asked"]} <= meant
    assert all(meaning in page.text("dd") for meaning in meant)
    plain = check_page(render_page([opened(run_folder(tmp_path / "plain", verdict=[]))]))
    assert "draws no conclusion" in plain.text("p")
    older = check_page(render_page([opened(run_folder(tmp_path / "older"))]))
    assert not [found for found in older.of("p") if found.get("class") == "verdict"]


TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0\r"))


@settings(max_examples=draws(50))
@given(st.lists(st.one_of(TEXTS, st.integers(), st.none(), st.floats(allow_nan=False)), min_size=1))
def test_cells_are_read_back_as_they_were(cells: list[Any]) -> None:
    table = Table("t", ("first", "second"), tuple(("row", cell) for cell in cells))
    record = RunRecord(
        stage="run",
        config={},
        versions={},
        seconds=1.0,
        tables=(table,),
        folder=Path("run"),
        sha256="0" * 64,
        figures=(),
        cards={},
        programs={},
        document={},
    )
    found: list[str] = []

    class Cells(Page):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            super().handle_starttag(tag, attrs)
            if tag == "td":
                found.append("")
            if tag == "data" and self.open[-2] == "td":
                found[-1] += dict(attrs)["value"] or ""

        def handle_data(self, data: str) -> None:
            if self.open and self.open[-1] == "td":
                found[-1] += data

    Cells(render_page([record]))
    assert found[: len(cells)] == ["-" if cell is None else printable(str(cell)) for cell in cells]


def sweep(folder: Path, *numbers: int) -> Path:
    for number in numbers:
        write_result(
            folder / str(number),
            document(
                config={"predictor": {"trees": 2**number, "depth": [4]}, "tracking": {"sweep_id": str(number)}},
                tables=[
                    Table("Scores", ("side", "F1"), (("test", number / 10), ("train", 0.9)), ("Same note.",)),
                    Table(f"Only {number}", ("x",), ((number,),)),
                ],
            ),
        )
    return folder


def test_a_sweep_is_compared_by_what_differs(tmp_path: Path) -> None:
    folders, missing = find_runs(sweep(tmp_path / "sweep", 0, 1, 3, 10))
    assert [folder.name for folder in folders] == ["0", "1", "3", "10"]
    assert missing == ["2", "4", "5", "6", "7", "8", "9"]
    runs = [opened(folder) for folder in folders]
    assert varied(runs) == ["predictor.trees"]
    (together,) = stacked(runs)
    assert together == Table(
        "Scores",
        ("run", "predictor.trees", "side", "F1"),
        tuple(
            (str(place), 2**number, side, f1)
            for place, number in enumerate((0, 1, 3, 10), 1)
            for side, f1 in (("test", number / 10), ("train", 0.9))
        ),
        ("Same note.",),
    )
    page = check_page(render_page(runs, missing))
    captions = page.text("caption", "span")
    assert captions.count("Scores") == 1
    assert all(captions.count(f"Only {number}") == 1 for number in (3, 10))
    assert "not on this page: 2, 4, 5" in page.text("p")


def test_a_sweep_shows_what_its_command_printed(tmp_path: Path) -> None:
    names = [feature.name for feature in FEATURES[:14]]
    jobs = {"features=paper predictor.trees=1": 0.70, "features=all predictor.trees=4": 0.72}
    for number, (command, score) in enumerate(jobs.items()):
        folder = tmp_path / "sweep" / str(number)
        chosen = names if "all" in command else names[:4]
        write_result(
            folder,
            document(
                stage="train",
                command=f"foretail train {command} jobs=2 hydra.run.dir=x{number}",
                config={"features": {"names": chosen}, "tracking": {"best_by": "validation/asked/f1"}},
                scores={"validation": {"asked": {"f1": score}}},
                ensemble_sha256=f"{number}" * 64,
                reused=False,
            ),
        )
        paper_forest(trees=1 + 3 * number, depth=2).ensemble.save(folder / "ensemble.json")
    runs = [opened(folder) for folder in find_runs(tmp_path / "sweep")[0]]
    assert varied(runs) == ["features", "predictor.trees"]
    page = check_page(render_page(runs))
    text = page.text("p")
    assert "Of 2 jobs the best by validation/" in text
    assert "/f1 is job 1: 0.72 with 16 leaves" in text
    assert "Job 0 comes within 5 % of it with" in text
    (chart,) = page.of("img")
    assert chart["alt"].startswith("Score against what a model costs a switch")
    cells = page.text("td", "th")
    assert "features=paper predictor.trees=1" in cells
    assert not any(names[13] in cell for cell in cells)


def written(folder: Path, text: str) -> None:
    folder.mkdir()
    (folder / "result.json").write_text(text)


def lacking(folder: Path, name: str) -> None:
    (run_folder(folder) / name).unlink()


def truncated(folder: Path, name: str) -> None:
    file = run_folder(folder) / name
    file.write_bytes(file.read_bytes()[:-20] if name.endswith(".svg") else b"PNG")


def led_out(folder: Path, name: str, make: Callable[[Path], Any] | None = None) -> None:
    """A run, or a sweep whose run `make` makes, of which one file or folder is a link to somewhere else."""
    path, outside = folder / name, folder.with_name("outside")
    if make is None:
        run_folder(folder)
    else:
        make(path)
    path.rename(outside)
    path.symlink_to(outside)


REFUSED: list[tuple[Callable[[Path], Any], str]] = [
    (lambda folder: folder.mkdir(), "contains no result.json: give the folder of a finished run or sweep"),
    (lambda folder: None, "contains no result.json"),
    (lambda folder: written(folder, json.dumps(document(tables=[]))[:-30]), "run/result.json is damaged"),
    (lambda folder: written(folder, "[" * 100_000), "run/result.json is damaged"),
    (lambda folder: written(folder, "[1]"), "no stage that this version of Foretail has (collect, train"),
    (lambda folder: written(folder, '{"stage": "compile"}'), "no stage that this version of Foretail has"),
    (lambda folder: written(folder, json.dumps(document(tables=[], finished="\ud800"))), "result.json is damaged"),
    (lambda folder: written(folder, '{"stage": "train"}'), "another version of Foretail (config: "),
    (lambda folder: write_result(folder, document(tables=[{"title": "t", "rows": []}])), "(tables.0.columns: "),
    (lambda folder: write_result(folder, document(tables=[Table("t", ("a",), ((1, 2),))])), "rows and columns of 't'"),
    (
        lambda folder: write_result(folder, document(files=["../../secret.png"])),
        "outside of its folder (../../secret.png)",
    ),
    (lambda folder: write_result(folder, document(files=["/etc/passwd"])), "outside of its folder (/etc/passwd)"),
    (lambda folder: lacking(folder, "scores_by_seed.svg"), "scores_by_seed.svg, which result.json names, is missing"),
    (lambda folder: truncated(folder, "scores_by_seed.svg"), "scores_by_seed.svg is damaged"),
    *(
        (lambda folder, name=name: led_out(folder, name), f"run/{name} is a link that leads out of run: ")
        for name in ("result.json", "scores_by_seed.svg", "champion/model_card.md")
    ),
    (lambda folder: led_out(folder, "champion"), "run/champion/model_card.md is a link that leads out of run: "),
    (lambda folder: led_out(folder, "0", run_folder), "run/0 is a link that leads out of run: "),
]


def test_links_inside_of_a_run_are_followed(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run")
    (folder / "scores_by_seed.svg").rename(folder / "drawn.svg")
    (folder / "scores_by_seed.svg").symlink_to("drawn.svg")
    (tmp_path / "link").symlink_to("run")
    assert opened(tmp_path / "link").figures == opened(folder).figures != ()


@pytest.mark.nightly
@pytest.mark.parametrize(("make", "complaint"), REFUSED)
def test_is_refused_in_one_sentence(make: Callable[[Path], Any], complaint: str, tmp_path: Path) -> None:
    make(tmp_path / "run")
    (tmp_path / "page.html").write_text("an earlier page")
    before = sorted(tmp_path.rglob("*"))
    done = foretail(tmp_path, "report", "run=run", "out=page.html")
    assert (done.returncode, done.stdout) == (cli.EXIT_BAD_INPUT, "")
    assert len(done.stderr.splitlines()) == 1
    assert complaint in done.stderr
    assert (tmp_path / "page.html").read_text() == "an earlier page"
    assert sorted(tmp_path.rglob("*")) == before


def test_a_page_of_a_real_run_holds_the_command_that_makes_it_again(tmp_path: Path) -> None:
    (tmp_path / "demand.csv").write_text("0,0.9,0.1\n0.2,0,0.7\n0.6,0.1,0\n")
    overrides = ["demand=demand.csv", "degree=1", "k=3", "outputs=[json,c]", "seed=5"]
    done = foretail(tmp_path, "schedule", *overrides, "hydra.run.dir=outputs/one")
    assert "beside it: schedule.json, schedule.h" in done.stdout
    first = result_in(tmp_path / "outputs/one")
    command = shlex.split(first["command"])
    assert command == ["foretail", "schedule", *overrides]
    assert foretail(tmp_path, *command[1:], "hydra.run.dir=outputs/two").returncode == 0
    second = result_in(tmp_path / "outputs/two")
    assert first["tables"] == second["tables"] != []
    assert first["tables"][0]["rows"][0][1] == first["theta_single_hop"]

    assert foretail(tmp_path, "report", "run=[outputs/one,outputs/two]", "hydra.run.dir=page").returncode == 0
    page = check_page((tmp_path / "page" / "report.html").read_text())
    assert shlex.join(command) in page.text("code")
    assert result_in(tmp_path / "page")["page"].endswith("page/report.html")


def run(policy: str, seed: int, incast_p95: float) -> PolicyRun:
    summary = FlowSummary(10, 0, 1.0, incast_p95, incast_p95, False, 0.0, 0, 0)
    return PolicyRun(
        policy=policy,
        seed=seed,
        path=Path("nowhere"),
        flows_sha256="0" * 64,
        flows=dict.fromkeys((*FLOW_GROUPS, "all"), summary),
        never_started=0,
        queries=None,
        rounds=None,
        cost=RunCost(1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 1e9),
        occupancy={"p99": 0.5},
        counters={},
        asked=None,
        predicted_drops=None,
        reused=False,
        seconds=1.0,
        cpu_seconds=1.0,
        packets_per_cpu_second=None,
    )


def compared(**slowdowns: list[float]) -> FlowsResult:
    runs = [run(policy, seed, value) for policy, values in slowdowns.items() for seed, value in enumerate(values)]
    return FlowsResult(tuple(runs), ("lqd",), None)


def test_a_lossless_packet_that_is_lost_is_the_first_sentence() -> None:
    whole = compared(lqd=[4.0], dt=[3.0])
    counters = {"pauses": 2, "paused_ns": 5, "pausable_ns": 10, "lossless_drops": 1_234}
    runs = tuple(replace(one, counters=counters) if one.policy == "dt" else one for one in whole.runs)
    first, *others = replace(whole, runs=runs).verdict()
    assert first.startswith("Lossless queues lost packets (Dynamic Thresholds 1,234): raise scenario.pfc.headroom_byt")
    assert others == whole.verdict()


@pytest.mark.parametrize(
    ("asking", "accepting", "verdict"),
    [
        ([5.0, 6.0, 5.5], [9.0, 10.0, 9.6], "so predictions help here"),
        ([9.0, 10.0, 9.6], [5.0, 6.0, 5.5], "so predictions do harm here"),
        ([5.0, 9.0, 5.5], [9.0, 5.0, 5.6], "not a difference that these seeds can tell from chance"),
    ],
)
def test_a_comparison_says_what_predictions_are_worth(
    asking: list[float], accepting: list[float], verdict: str
) -> None:
    found = compared(lqd=[4.0] * 3, credence=asking, credence_accept=accepting, dt=[3.0] * 3)
    first, second = found.verdict()
    assert first.startswith("Dynamic Thresholds has the lowest p95 slowdown of incast flows, 3; LQD")
    assert verdict in second
    assert "(3 seeds" in second
    assert "tell from chance" not in first  # one less than LQD in every seed
    noisy = compared(lqd=[4.0, 9.0, 5.0], dt=[5.0, 2.0, 6.0]).verdict()[0]
    assert noisy.endswith(
        "LQD, which Credence imitates, has 6 (which is not a difference that these seeds can tell from chance)."
    )
    mean = found.differences("slowdown.incast.p95", "credence_accept")["credence"].mean
    assert f"{mean:+.3g} [" in second


def test_seeds_that_the_model_has_seen_are_shown_apart() -> None:
    found = replace(compared(lqd=[4.0] * 3, credence=[9.0, 5.0, 5.0]), seen=(1, 2))
    assert found.verdict()[0] == "The model was trained or tuned on seed 1, 2: what it does there is shown apart."
    assert found.verdict()[1].endswith("Credence is next with 9.")
    titles = [table.title for table in found.tables()]
    assert titles[:3:2] == ["Policies", "Policies, on runs that the model has seen"]
    document = found.document()
    assert document["seen_seeds"] == (1, 2)
    means = [document["means"], document["seen"]["means"]]
    assert [mean["slowdown.incast.p95"]["credence"].mean for mean in means] == [9, 5]
    assert "all of these seeds, which flatters it" in replace(found, seen=(0, 1, 2)).verdict()[0]


def test_a_comparison_says_what_it_cannot_tell() -> None:
    assert compared(lqd=[1.0]).verdict() == []
    (first,) = compared(lqd=[2.0], dt=[3.0]).verdict()
    assert first.startswith("LQD has the lowest")
    assert "Dynamic Thresholds is next with 3" in first
    assert "add credence_accept to policy" in compared(lqd=[2.0], credence=[3.0]).verdict()[1]
    one = compared(credence=[2.0], credence_accept=[3.0])
    assert "one seed cannot tell" in one.verdict()[1]
    empty = replace(one, runs=tuple(replace(each, flows=one.runs[0].flows) for each in one.runs))
    assert len(empty.verdict()) == 2


def test_the_worth_of_predictions_never_stands_alone() -> None:
    assert worth_in_words(0.6, 98.9) == (
        "Deciding in the switch, under Credence, the predictor sends 98.9 % of what LQD sends and recovers 60 % of "
        "what always accepting loses against it."
    )
    assert worth_in_words(-1.0, 90.0, decides=False).startswith("Credence with these predictions sends 90 %")
    assert "always accepting loses nothing there" in worth_in_words(None, 100.0)
    assert worth_in_words(None, None).startswith("LQD sends nothing")
    tuned = [{"title": "DT, alpha 64", "recovered_loss": -11_645.0, "sent_percent_of_lqd": 100.1}]
    of_nothing = worth_in_words(95_915.0, 99.61, tuned)
    assert "recovers" not in of_nothing  # a share of next to nothing
    assert of_nothing.endswith(
        "DT, alpha 64, chosen without a predictor on the runs that trained the model, sends 100.1 %: the predictor "
        "loses 0.49 % of LQD's packets: take DT, alpha 64."
    )
    assert "is worth nothing there" in worth_in_words(0.6, 100.104, tuned)
    assert "the predictor gains 0.2 % of LQD's packets." in worth_in_words(0.6, 100.3, tuned)


@pytest.mark.parametrize(
    ("tuned", "best"), [(99.9, "DT, alpha 16 sends most, 99.9 %"), (98.0, "Credence sends most, 99 %")]
)
def test_a_policy_sends_most_only_if_no_tuned_one_sends_more(tuned: float, best: str) -> None:
    sent = {"lqd": 100, "dt": 97, "credence": 99}
    compared = Comparison(lqd=100, followlqd=90, accept=95, sent=99, arrivals=120, transmitted=sent, questions={})
    result = ReplayResult(
        given={},
        note="",
        compared=compared,
        source=Source("model"),
        scores={},
        policy="credence",
        baselines=[{"title": "DT, alpha 16", "recovered_loss": 0.9, "sent_percent_of_lqd": tuned}],
        chosen_on="other runs",
    )
    assert best in result.verdict()[0]


def test_a_gate_that_refuses_says_what_failed() -> None:
    checks = (Check("asked_f1", True, "F1 is 0.7"), Check("tuned_baseline", False, "R is less than that of DT"))
    refused = PromoteResult({"held_out": [{}, {}]}, checks, None, (), (), {}).verdict()
    assert refused == [
        "The gate refused the model for tuned_baseline.",
        "On 2 held-out runs, R is less than that of DT.",
    ]
