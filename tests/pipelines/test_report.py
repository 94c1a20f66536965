"""The page of a run: whole, safe and readable whatever the results hold; and what is refused in one sentence."""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure

from foretail.features.digest import write_digest
from foretail.pipelines import cli
from foretail.pipelines.promotion.model_card import CARD_FILE
from foretail.pipelines.reporting.page import render_page, stacked, varied
from foretail.pipelines.reporting.run_record import LARGEST_SVG_BYTES, RunRecord, find_runs
from foretail.pipelines.runs.result import Table, write_result
from tests.examples import draws

EVIL = "<script>alert('x')</script><img src=http://evil.example/x onerror=\"alert(1)\"> & ]]> {{ 7*7 }}"
VOID = {"meta", "link", "img", "br", "hr", "input"}
LOADING = ("src", "href", "srcset", "poster", "data", "action", "background", "xlink:href")
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome") or shutil.which("chromium-browser") or ""


class Page(HTMLParser):
    """Elements with their attributes and texts; raises when they do not nest."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(set(names)) == len(names), (tag, attrs)
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)
            self.texts.append((tag, ""))

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag, f"</{tag}> at {self.getpos()}"

    def handle_data(self, data: str) -> None:
        if self.open:
            self.texts.append((self.open[-1], data))

    def of(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.elements if name == tag]

    def text(self, *tags: str) -> str:
        return "".join(data for tag, data in self.texts if not tags or tag in tags)


def check_page(text: str) -> Page:
    """What every page has to be: nested, closed in itself, and accessible."""
    page = Page(text)
    assert {"script", "iframe", "object", "embed", "form", "base", "svg"}.isdisjoint(tag for tag, _ in page.elements)
    for tag, attributes in page.elements:
        assert not any(name.startswith("on") or name == "style" for name in attributes), (tag, attributes)
        for name in LOADING:
            if name in attributes and tag != "a":
                assert attributes[name].startswith("data:"), (tag, attributes)
    (style,) = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    assert not re.search(r"@import|url\(|expression", style)
    (policy,) = [meta["content"] for meta in page.of("meta") if meta.get("http-equiv") == "Content-Security-Policy"]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert policy.split("; ")[:3] == ["default-src 'none'", "img-src data:", f"style-src 'sha256-{digest}'"]
    for image in page.of("img"):
        media_type, _, content = image["src"].removeprefix("data:").partition(";base64,")
        decoded = base64.b64decode(content, validate=True)
        if media_type == "image/svg+xml":
            assert ElementTree.fromstring(decoded).tag.endswith("svg")
        else:
            assert media_type == "image/png"
            assert decoded.startswith(b"\x89PNG")
        assert image["alt"].strip()
    regions = page.of("div")
    assert len(page.of("table")) == len(regions)
    assert all(each["role"] == "region" and each["aria-label"].strip() and each["tabindex"] == "0" for each in regions)
    assert all(header.get("scope") in ("col", "row") for header in page.of("th"))
    levels = [int(tag[1]) for tag, _ in page.elements if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(set(ids)) == len(ids)
    assert {link["href"][1:] for link in page.of("a") if link["href"].startswith("#")} <= set(ids)
    assert page.of("html") == [{"lang": "en"}]
    return page


def document(**changes: Any) -> dict[str, Any]:
    """A result as ``stage.run`` writes it."""
    return {
        "stage": "study",
        "command": "foretail study experiment=predictor_study size=small",
        "finished": "2026-01-02T03:04:05+00:00",
        "config": {
            "size": "small",
            "study": {
                "small": {"split": {"train": [1, 2], "test": [3]}, "seed": 7},
                "full": {"split": {"train": [8], "test": [9]}, "seed": 8},
            },
            "predictor": {"trees": 4},
        },
        "versions": {"python": "3.11.7", "torch": None},
        "seconds": 12.5,
        "tables": [Table("Scores", ("candidate", "F1", "rows"), (("ours", 0.123456789012345, 1234567),), ("A note.",))],
        "candidates": {
            "ours": {
                "datasets": [{"scenario": "base", "seed": 1, "content_sha256": "a" * 64}],
                "tracked": {
                    "run_id": "f" * 32,
                    "experiment_id": "3",
                    "uri": "http://user:secret@tracking.example:5000/",
                },
            }
        },
        **changes,
    }


def run_folder(folder: Path, **changes: Any) -> Path:
    """A run with one figure, its numbers and a model card."""
    figure = Figure(figsize=(2, 1))
    figure.subplots().plot([1, 2, 3])
    folder.mkdir(parents=True)
    figure.savefig(folder / "scores_by_seed.svg")
    figure.savefig(folder / "scores_by_seed.png")
    (folder / "scores_by_seed.csv").write_text("seed,f1\n1,0.5\n")
    (folder / "champion").mkdir()
    card = "# Predictor ours\n\n| feature | bits |\n| --- | --- |\n| queue | 16 |\n"
    (folder / "champion" / CARD_FILE).write_text(card)
    files = [f"scores_by_seed.{kind}" for kind in ("csv", "png", "svg")]
    write_result(folder, document(**{"files": files, **changes}))
    return folder


def opened(folder: Path) -> RunRecord:
    write_digest(folder)  # which the stage writes last
    return RunRecord.open(folder)


def test_a_page_shows_all_that_a_run_left(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run")
    page = check_page(render_page([opened(folder)]))
    assert page.text("h1") == "Report: foretail study predictor_study small"
    assert "foretail study experiment=predictor_study size=small" in page.text("code")
    assert "2026-01-02 03:04:05 UTC" in page.text("p")
    assert "A note." in page.text("p")
    assert [value["value"] for value in page.of("data")][1:] == ["0.123456789012345", "1234567"]
    assert "0.1235" in page.text("data")
    (image,) = page.of("img")
    assert image["src"].startswith("data:image/svg+xml;base64,")
    assert image["alt"] == (
        "Figure scores by seed of foretail study predictor_study small. Its numbers are in scores_by_seed.csv."
    )
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
    assert "sqlite:////home/me/mlflow.db" in page.text("td")
    script = tracked | {"uri": "javascript:alert(1)//"}
    page = check_page(render_page([opened(run_folder(tmp_path / "script", candidates={"tracked": script}))]))
    assert page.of("a") == []


def test_names_from_data_stay_text(tmp_path: Path) -> None:
    name = "<script>alert(1)<"
    folder = run_folder(
        tmp_path / "<b onclick=alert(1)>",
        command=f"foretail study experiment={EVIL}",
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


TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0\r"))


@settings(max_examples=draws(50))
@given(st.lists(st.one_of(TEXTS, st.integers(), st.none(), st.floats(allow_nan=False)), min_size=1))
def test_cells_are_read_back_as_they_were(cells: list[Any]) -> None:
    table = Table("t", ("first", "second"), tuple(("row", cell) for cell in cells))
    record = RunRecord(Path("run"), "0" * 64, "study", {}, {}, 1.0, None, None, (table,), (), {}, {})
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
    assert found[: len(cells)] == ["-" if cell is None else str(cell) for cell in cells]


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


def test_runs_of_several_stages_share_a_page(tmp_path: Path) -> None:
    runs = [opened(run_folder(tmp_path / "one")), opened(run_folder(tmp_path / "two", stage="train"))]
    assert varied(runs) == []
    page = check_page(render_page(runs))
    assert page.text("h1") == "Report of 2 runs"
    assert len(page.of("img")) == 2


def test_results_of_older_versions_say_what_they_lack(tmp_path: Path) -> None:
    old = document()
    for name in ("command", "finished", "tables"):
        del old[name]
    write_result(tmp_path, old)
    warnings = check_page(render_page([opened(tmp_path)])).text("p")
    assert "kept no tables: run it again" in warnings
    assert "did not write its command down" in warnings
    assert "a time that was not written down" in warnings


def test_a_large_svg_gives_way_to_its_png(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run")
    svg = folder / "scores_by_seed.svg"
    svg.write_text(svg.read_text() + f"<!--{'x' * LARGEST_SVG_BYTES}-->")
    (figure,) = opened(folder).figures
    assert figure.media_type == "image/png"
    write_result(folder, document(files=["scores_by_seed.svg"]))
    (figure,) = opened(folder).figures
    assert figure.media_type == "image/svg+xml"


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
    (lambda folder: folder.mkdir(), "holds no result.json: give the folder of a finished run or sweep"),
    (lambda folder: None, "holds no result.json"),
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


@pytest.mark.parametrize(("make", "complaint"), REFUSED)
def test_is_refused_in_one_sentence(
    make: Callable[[Path], Any],
    complaint: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    make(tmp_path / "run")
    (tmp_path / "page.html").write_text("an earlier page")
    before = sorted(tmp_path.rglob("*"))
    assert cli.main(["report", "run=run", "out=page.html"]) == cli.EXIT_BAD_INPUT
    shown = capsys.readouterr()
    assert shown.out == ""
    assert len(shown.err.splitlines()) == 1
    assert complaint in shown.err
    assert (tmp_path / "page.html").read_text() == "an earlier page"
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("overrides", "complaint"),
    [
        ([], "the setting run is missing"),
        (["run=[]"], "run is no folder and no list of folders"),
        (["run=3"], "run is no folder and no list of folders"),
        (["run=[a,a]"], "run names a folder twice"),
        (["run=a", "out=result.json"], "out = result.json is no page: give a file that ends with .html"),
    ],
)
def test_settings_are_checked(
    overrides: list[str],
    complaint: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["report", *overrides]) == cli.EXIT_BAD_INPUT
    assert complaint in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_page_of_a_real_run_holds_the_command_that_makes_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "demand.csv").write_text("0,0.9,0.1\n0.2,0,0.7\n0.6,0.1,0\n")
    overrides = ["demand=demand.csv", "degree=1", "k=3", "outputs=[json,c]", "seed=5"]
    assert cli.main(["schedule", *overrides, "hydra.run.dir=outputs/one"]) == 0
    assert "beside it: schedule.json, schedule.h" in capsys.readouterr().out
    first = json.loads((tmp_path / "outputs/one/result.json").read_text())
    command = shlex.split(first["command"])
    assert command == ["foretail", "schedule", *overrides]
    assert cli.main([*command[1:], "hydra.run.dir=outputs/two"]) == 0
    second = json.loads((tmp_path / "outputs/two/result.json").read_text())
    assert first["tables"] == second["tables"] != []
    assert first["tables"][0]["rows"][0][1] == first["theta_single_hop"]

    assert cli.main(["report", "run=[outputs/one,outputs/two]", "hydra.run.dir=page"]) == 0
    page = check_page((tmp_path / "page" / "report.html").read_text())
    assert shlex.join(command) in page.text("code")
    assert json.loads((tmp_path / "page" / "result.json").read_text())["page"].endswith("page/report.html")


PROBE = """<!doctype html><title>probe</title><iframe id=f src="page.html" style="width:%dpx;height:2000px;border:0">
</iframe><pre id=out></pre><script>
f.onload = () => {
  const d = f.contentDocument, w = f.contentWindow, root = d.documentElement;
  const rgb = c => c.match(/[\\d.]+/g).map(Number);
  const lum = c => rgb(c).slice(0, 3).map(v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((s, v, i) => s + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = e => { for (; e; e = e.parentElement) { const c = w.getComputedStyle(e).backgroundColor;
    if (rgb(c)[3] !== 0) return c; } return "rgb(255, 255, 255)"; };
  const says = e => [...e.childNodes].some(n => n.nodeType == 3 && n.data.trim());
  const ratios = [...d.querySelectorAll("body *")].filter(says).map(e => {
      const a = lum(w.getComputedStyle(e).color), b = lum(behind(e));
      return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05); });
  out.textContent = JSON.stringify({ overflow: root.scrollWidth - root.clientWidth, contrast: Math.min(...ratios),
    background: lum(w.getComputedStyle(d.body).backgroundColor), title: document.title,
    images: [...d.images].map(i => i.complete && i.naturalWidth > 0),
    loaded: w.performance.getEntriesByType("resource").map(e => e.name).filter(n => !n.startsWith("data:")),
    styled: w.getComputedStyle(d.querySelector("th")).borderBottomStyle });
};
</script>"""


@pytest.fixture(scope="module")
def shown_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of two runs with hostile names and wide tables, and Chromium's profile."""
    folder = tmp_path_factory.mktemp("shown")
    wide = Table("Wide", tuple(f"column {n}" for n in range(30)), (tuple(range(30)),))
    long = Table("A title that is far too long for the narrow page of a telephone", ("name",), ((EVIL,), ("x" * 300,)))
    one = run_folder(folder / "one", tables=[wide, long], command=f"foretail study x={'y' * 300}")
    two = run_folder(folder / "two", finished=None, files=["scores_by_seed.png"])
    script = '<script>top.document.title = "taken over"</script>'
    svg = f'<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9">{script}</svg>'
    (one / "scores_by_seed.svg").write_text(svg)
    (folder / "page.html").write_text(render_page([opened(one), opened(two)], ["sweep/3"]))
    return folder


@pytest.mark.skipif(not CHROMIUM, reason="no chromium and no google-chrome on PATH")
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [360, 1280])
def test_chromium_shows_the_page(width: int, dark: bool, shown_folder: Path) -> None:
    probe = shown_folder / "probe.html"
    probe.write_text(PROBE % width)
    command = [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
    command += [f"--user-data-dir={shown_folder / 'profile'}", "--allow-file-access-from-files", "--no-first-run"]
    command += ["--disable-background-networking", f"--blink-settings=preferredColorScheme={0 if dark else 1}"]
    command += ["--virtual-time-budget=5000", "--dump-dom", probe.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    page = Page(done.stdout)
    found = json.loads(page.text("pre"))
    assert found["overflow"] == 0
    assert found["contrast"] >= 4.5
    assert (found["background"] < 0.1) == dark
    assert found["images"] == [True, True]
    assert found["loaded"] == []
    assert found["styled"] == "solid"
    assert found["title"] == "probe"
