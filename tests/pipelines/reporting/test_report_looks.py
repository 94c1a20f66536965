"""The page of a run as readers see it: on a telephone, at night, on paper, by ear; its words and its paths."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretail.pipelines.reporting.page import GLOSSARY_FILE, Words, glossary, render_page
from foretail.pipelines.reporting.run_record import without_absolute_paths
from foretail.pipelines.runs.result import Table
from tests.examples import draws
from tests.reports import EVIL, Page, opened, run_folder

AXE = importlib.util.find_spec("axe_playwright_python")
ROOT = Path(__file__).parents[3]
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome") or shutil.which("chromium-browser") or ""
needs_chromium = pytest.mark.skipif(not CHROMIUM, reason="no chromium and no google-chrome on PATH")
needs_axe = pytest.mark.skipif(
    AXE is None, reason="no axe-core: `make setup` installs axe-playwright-python, which has it"
)

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


def in_chromium(page: Path, dark: bool, milliseconds: int = 5000) -> Page:
    """A page as headless Chromium leaves it."""
    command = [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
    command += [f"--user-data-dir={page.parent / 'profile'}", "--allow-file-access-from-files", "--no-first-run"]
    command += ["--disable-background-networking", f"--blink-settings=preferredColorScheme={0 if dark else 1}"]
    command += [f"--virtual-time-budget={milliseconds}", "--dump-dom", page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return Page(done.stdout)


@needs_chromium
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [360, 1280])
def test_chromium_shows_the_page(width: int, dark: bool, shown_folder: Path) -> None:
    probe = shown_folder / "probe.html"
    probe.write_text(PROBE % width)
    found = json.loads(in_chromium(probe, dark).text("pre"))
    assert found["overflow"] == 0
    assert found["contrast"] >= 4.5
    assert (found["background"] < 0.1) == dark
    assert found["images"] == [True, True]
    assert found["loaded"] == []
    assert found["styled"] == "solid"
    assert found["title"] == "probe"


LOOK = """<!doctype html><html lang="en"><title>axe</title><main><h1>axe</h1>
<iframe id=f title="page" src="looked.html" style="width:%dpx;height:2000px;border:0"></iframe><pre id=out></pre></main>
<script>
f.onload = () => f.contentWindow.axe.run(f.contentDocument, {resultTypes: ["violations"]}).then(found => {
  out.textContent = JSON.stringify({passes: found.passes.length, violations: found.violations.map(one =>
    [one.impact, one.id, one.help, one.nodes.slice(0, 5).map(node => node.html.slice(0, 300))])});
});
</script></html>"""


@needs_axe
@needs_chromium
@pytest.mark.parametrize(("width", "dark"), [(360, True), (1280, False)])
def test_axe_finds_nothing_to_mend(width: int, dark: bool, shown_folder: Path) -> None:
    assert AXE is not None
    assert AXE.submodule_search_locations
    (folder,) = AXE.submodule_search_locations
    text = (shown_folder / "page.html").read_text()
    # The page forbids scripts: the copy that axe looks at does not.
    copy = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", text)
    (shown_folder / "axe.js").write_bytes((Path(folder) / "axe.min.js").read_bytes())
    (shown_folder / "looked.html").write_text(copy.replace("</head>", '<script src="axe.js"></script></head>'))
    look = shown_folder / "look.html"
    look.write_text(LOOK % width)
    found = json.loads(in_chromium(look, dark, 60_000).text("pre"))
    assert found["passes"] > 10
    assert found["violations"] == []


def test_the_glossary_is_that_of_the_documentation() -> None:
    rows = re.findall(r"^\| (?!---|term)", (ROOT / "docs" / "reference" / GLOSSARY_FILE).read_text(), re.MULTILINE)
    meanings = {meaning for circuits in (False, True) for meaning in glossary(circuits).values()}
    assert len(meanings) > 0.7 * len(rows) > 20
    assert "throughput" in glossary(True).keys() - glossary(False).keys()
    assert glossary(False)["sent, % of LQD"].startswith("What a switch sends in which the model decides")
    assert not any(set("[]`|") & set(meaning) for meaning in meanings)
    words = Words(circuits=False)
    assert words("asked <b>, unasked; ETA").count("<abbr") == 2
    assert "&lt;b&gt;" in words("asked <b>")


PARTS = st.text("abc-_.1", min_size=1, max_size=6).filter(lambda part: set(part) != {"."})


@settings(max_examples=draws(50))
@given(st.lists(PARTS, min_size=2, max_size=6), st.sampled_from(["{}", "in {}: 3", "sqlite:///{}", "x={},y", "['{}']"]))
def test_no_absolute_path_is_shown(parts: list[str], around: str) -> None:
    path = "/" + "/".join(parts)
    shown = without_absolute_paths({"a": [around.format(path)]}, Path("run"))["a"][0]
    assert shown == around.format("…/" + "/".join(parts[-2:]))
    inside = str(Path("run").resolve() / "b" / "c.json")
    assert without_absolute_paths(around.format(inside), Path("run")) == around.format("b/c.json")
