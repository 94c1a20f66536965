"""What the pages point at exists: links, headings, and every file that is named in code."""

from __future__ import annotations

import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

from tests.docs.pages import PAGES, ROOT, inline_code, name_of, prose

LINK = re.compile(r"\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^)\s]+)\)")
SUFFIXES = r"(?:py|hpp|h|cc|cpp|j2|yaml|md|json|csv|toml|txt|svg|png)"
REPOSITORY_PATH = re.compile(rf"(?:[\w.-]+/)+(?:[\w.-]+\.{SUFFIXES})?")
ROOMS = (
    "configs",
    "core",
    "pipelines",
    "export",
    "models",
    "gym",
    "sim_bridge",
    "studies",
    "features",
    "testing",
    "tests",
    "docs",
    "benchmarks",
    "examples",
)


@cache
def tracked() -> tuple[str, ...]:
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, check=True)
    return tuple(listed.stdout.decode().splitlines())


def anchors(page: Path) -> set[str]:
    """Headings as a Git host and the site name them."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for target in LINK.findall(prose(page)):
        if re.match(r"https?://", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists() or (anchor and anchor not in anchors(file)):
            broken.append(target)
    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_named_files_exist(page: Path) -> None:
    missing = []
    for span in inline_code(page):
        for path in REPOSITORY_PATH.findall(span) if not span.startswith("foretail ") else ():
            if "NAME" in path or not (
                path.split("/")[0] in ROOMS or re.fullmatch(r"[\w.-]+/[\w.-]+\.(?:hpp|h|cc)", path)
            ):
                continue
            if not any(file == path or file.startswith(path) or file.endswith(f"/{path}") for file in tracked()):
                missing.append(path)
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_lines_are_short(page: Path) -> None:
    long = [line for line in page.read_text(encoding="utf-8").splitlines() if len(line) > 120]
    assert [line for line in long if not line.startswith(("|", "!["))] == []


def test_api_pages_name_modules_that_exist_and_every_module_of_settings() -> None:
    named = {
        module
        for page in (ROOT / "docs" / "reference" / "api").glob("*.rst")
        for module in re.findall(r"automodule:: foretail\.([\w.]+)", page.read_text("utf-8"))
    }
    files = {file.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for file in tracked()}
    assert named <= files
    assert {module for module in files if module.startswith("configs.schema")} <= named
