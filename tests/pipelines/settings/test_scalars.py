"""Values in files of settings that YAML reads otherwise than they are written. Cost: below a second."""

from __future__ import annotations

from pathlib import Path

import pytest

from foretail.configs.plugins import check_scalars
from foretail.core.errors import ForetailError


@pytest.mark.parametrize("written", ["010", "-007", "0_10", "1:30", "12:30:45", "1:30.5", "[1, 2, 08]"])
def test_what_yaml_reads_in_another_base_is_refused(written: str, tmp_path: Path) -> None:
    (tmp_path / "split").mkdir()
    (tmp_path / "split" / "mine.yaml").write_text(f"name: by_run\ntest:\n  inner: {written}\n")
    with pytest.raises(ForetailError, match=r"mine\.yaml, line 3, has .*, which YAML reads in another base: write"):
        check_scalars(tmp_path)


@pytest.mark.parametrize("written", ["no", "On", "TRUE"])
def test_a_name_that_yaml_reads_as_true_or_false_is_refused(written: str, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(f"tracking: {written}\nname: {written}\n")
    with pytest.raises(ForetailError, match=r"mine\.yaml, line 2, has .* as a name, which YAML reads as true or false"):
        check_scalars(tmp_path)


def test_what_everybody_reads_alike_passes(tmp_path: Path) -> None:
    text = "name: 'no'\na: [0, 10, 1_000, 0.5, -0.25, 4e6, 0x10, '010', '1:30', a:b, 00:1b]\nb: &x {c: 1}\nd: *x\n"
    (tmp_path / "mine.yaml").write_text(text)
    (tmp_path / "broken.yaml").write_text("a: [")
    check_scalars(tmp_path)
