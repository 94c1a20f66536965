"""Passwords that leave no text: the scan against the expression that it stands for."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from foretail.core.errors import user_apart, without_passwords, without_tokens

_ADDRESS = re.compile(r"""[a-z][a-z0-9+.-]*://[^\s"'<>]*@""", re.IGNORECASE | re.ASCII)
PIECES = ("a", "Z", "1", "://", "@", ":", "/", " ", "file", "sqlite", "x.y", "-", "'", "é", "İ", "?token=")


@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
def test_an_address_loses_its_user_up_to_the_last_at_sign(text: str) -> None:
    assert without_passwords(text) == without_tokens(_ADDRESS.sub(lambda match: user_apart(match[0])[1], text))
