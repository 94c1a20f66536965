"""JSON from outside: what is read, and that nothing but ValueError comes of the rest."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretail.core import json_text
from foretail.core.json_text import MOST_LEVELS, parse_json

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=20,
)


@given(VALUES)
def test_documents_are_read_as_python_reads_them(document: object) -> None:
    text = json.dumps(document)
    assert parse_json(text) == parse_json(text.encode()) == document


@given(st.text() | st.binary())
def test_any_other_text_is_a_value_error(text: str | bytes) -> None:
    try:
        parse_json(text)
    except ValueError as error:
        assert "\n" not in str(error)  # noqa: PT017


NESTED = ("[", "]"), ('{"a":', "}"), ('{"a":1,"b":', "}")


@pytest.mark.parametrize(("opening", "closing"), NESTED)
@pytest.mark.parametrize("levels", [MOST_LEVELS + 1, 900, 100_000])
def test_depth_has_a_bound(levels: int, opening: str, closing: str) -> None:
    parse_json(opening * MOST_LEVELS + "0" + closing * MOST_LEVELS)
    with pytest.raises(ValueError, match="nested too deeply"):
        parse_json(opening * levels + "0" + closing * levels)


def test_a_key_may_have_to_be_distinct() -> None:
    assert parse_json('{"a": 1, "a": 2}') == {"a": 2}
    assert parse_json('[{"a": {"a": 1}}, {"a": 2}]', distinct_keys=True) == [{"a": {"a": 1}}, {"a": 2}]
    with pytest.raises(ValueError, match="it has 'a' twice in one object"):
        parse_json('[{"a": 1, "b": 2, "a": 1}]', distinct_keys=True)


@pytest.mark.parametrize("text", ["NaN", "[-Infinity]", '{"a": Infinity}'])
def test_numbers_are_finite(text: str) -> None:
    with pytest.raises(ValueError, match="is not finite"):
        parse_json(text)


def test_size_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_text, "LARGEST_BYTES", 10)
    assert parse_json("[1,2,3,45]") == [1, 2, 3, 45]
    with pytest.raises(ValueError, match="larger than 10 bytes"):
        parse_json("[1,2,3,456]")
