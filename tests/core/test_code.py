"""Digests of code change with what runs, and with nothing else. Costs two seconds."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretail.core import code
from foretail.core.code import code_digest, cpp_digest

PYTHON = {
    "core/__init__.py": '"""Shared."""\n',
    "core/shared.py": '"""A module."""\n\nSIZE = 3\n"""Bytes of a cell."""\n',
    "sim_bridge/__init__.py": "",
    "sim_bridge/run.py": (
        '"""Runs."""\n\nfrom foretail.core.shared import SIZE\n\n\n'
        'def run(packets: int) -> int:\n    """Return bytes."""\n    # cells\n    return packets * SIZE\n'
    ),
    "sim_bridge/other.py": '"""Another."""\n\nNUMBER = 1\n',
    "export/__init__.py": "",
    "export/text.py": "from foretail.sim_bridge import run\n",
    "export/templates/table.j2": "{{ rows }}\n",
}
CPP = """#include "buffer/queue.hpp" // the queue
/* a run */
int run(int packets) {
    const char* said = "// no comment"; // a comment
    return packets * 1'000 + (said[0] == '/');  /* 'quoted' */
}
"""


@pytest.fixture
def rooms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Rooms of their own, whose files are read again for every digest."""
    for name, text in PYTHON.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(code, "PACKAGE", tmp_path)
    monkeypatch.setattr(code, "_python", code._python.__wrapped__)
    monkeypatch.setattr(code, "_module", code._module.__wrapped__)
    return tmp_path


def rewritten(rooms: Path, file: str, old: str, new: str) -> None:
    text = (rooms / file).read_text()
    assert old in text
    (rooms / file).write_text(text.replace(old, new))


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("sim_bridge/run.py", "# cells", "# cells of the buffer, 'quoted'"),
        ("sim_bridge/run.py", '"""Return bytes."""', '"""Return the bytes\n\n    of all packets.\n    """'),
        ("sim_bridge/run.py", '"""Runs."""', '"""What runs."""'),
        ("sim_bridge/run.py", "packets * SIZE", "(packets   *   SIZE)"),
        ("core/shared.py", '"""Bytes of a cell."""', '"""Bytes of a buffer\'s cell."""'),
        ("sim_bridge/other.py", "NUMBER = 1", "NUMBER = 2"),
        ("export/text.py", "run", "other"),
    ],
)
def test_comments_docstrings_and_code_that_is_not_imported_do_not_count(
    rooms: Path, file: str, old: str, new: str
) -> None:
    before = code_digest("sim_bridge.run")
    rewritten(rooms, file, old, new)
    assert code_digest("sim_bridge.run") == before


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("sim_bridge/run.py", "packets * SIZE", "packets + SIZE"),
        ("sim_bridge/run.py", "(packets: int)", "(packets: int = 1)"),
        ("core/shared.py", "SIZE = 3", "SIZE = 4"),
    ],
)
def test_code_that_runs_counts_also_where_it_is_imported_from(rooms: Path, file: str, old: str, new: str) -> None:
    before = code_digest("sim_bridge.run")
    rewritten(rooms, file, old, new)
    assert code_digest("sim_bridge.run") != before


def test_a_package_stands_for_all_its_modules_and_its_data(rooms: Path) -> None:
    whole, module = code_digest("sim_bridge"), code_digest("sim_bridge.run")
    rewritten(rooms, "sim_bridge/other.py", "1", "2")
    assert code_digest("sim_bridge") != whole
    assert code_digest("sim_bridge.run") == module
    exported = code_digest("export")
    rewritten(rooms, "export/templates/table.j2", "rows", "lines")
    assert code_digest("export") != exported


def test_a_function_stands_for_its_module() -> None:
    assert code_digest(code_digest) == code_digest("core.code")
    assert code_digest(code_digest) != code_digest("core.files")


def test_the_native_extension_counts_for_those_who_import_it(monkeypatch: pytest.MonkeyPatch) -> None:
    slots, files = code_digest("sim_bridge.open_loop.slotted"), code_digest("core.files")
    monkeypatch.setattr(code, "cpp_digest", lambda *_: "changed")
    assert code_digest("sim_bridge.open_loop.slotted") != slots
    assert code_digest("core.files") == files


def cpp_of(tmp_path: Path, source: str, header: str = "struct Queue {};\n") -> str:
    (tmp_path / "bindings").mkdir(exist_ok=True)
    (tmp_path / "buffer").mkdir(exist_ok=True)
    (tmp_path / "bindings" / "run.cpp").write_text(source)
    (tmp_path / "buffer" / "queue.hpp").write_text(header)
    (tmp_path / "buffer" / "unused.hpp").write_text("struct Unused {};\n")
    return cpp_digest.__wrapped__(tmp_path, tmp_path / "bindings")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("// the queue", "// the queue's header"),
        ("/* a run */", "/* a run,\n   in bytes */"),
        ("// a comment", ""),
        ("/* 'quoted' */", "/* it's */"),
        ("    return", "\treturn  "),
        ("{\n", "{  // opens\n"),
    ],
)
def test_comments_and_spaces_of_cpp_do_not_count(tmp_path: Path, old: str, new: str) -> None:
    assert old in CPP
    assert cpp_of(tmp_path, CPP) == cpp_of(tmp_path, CPP.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"// no comment"', '"// a comment"'),
        ("1'000", "1'001"),
        ("'/'", "'*'"),
        ("packets *", "packets +"),
    ],
)
def test_code_and_literals_of_cpp_count(tmp_path: Path, old: str, new: str) -> None:
    assert old in CPP
    assert cpp_of(tmp_path, CPP) != cpp_of(tmp_path, CPP.replace(old, new))


def test_included_headers_of_cpp_count_and_others_do_not(tmp_path: Path) -> None:
    before = cpp_of(tmp_path, CPP)
    assert cpp_of(tmp_path, CPP, header="struct Queue { int length; };\n") != before
    assert cpp_of(tmp_path, CPP, header="struct Queue {};  // empty\n") == before


def test_directives_end_with_their_line(tmp_path: Path) -> None:
    assert cpp_of(tmp_path, "#define A 1\nint a;\n") != cpp_of(tmp_path, "#define A 1 int a;\n")


@given(st.text(st.sampled_from("ab'\"\\/* \n"), max_size=30))
def test_no_comment_changes_what_follows_it(text: str) -> None:
    comment = text.replace("*/", "").replace("/", "")
    strip = functools.partial(code._without_comments)
    assert strip(f"int a; /*{comment}*/ int b;").split() == ["int", "a;", "int", "b;"]


def test_a_name_without_a_file_is_refused() -> None:
    with pytest.raises(ValueError, match=r"foretail\.core\.error is neither a module nor a package"):
        code_digest("core.errors", "core.error")
    with pytest.raises(ValueError, match="cores is not a package"):
        code_digest("core.errors", "cores.error")
