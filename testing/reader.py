"""The contract of readers of inputs: what one says and its reader does not use is told or refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from foretail.core.errors import ForetailError
from foretail.core.reading import telling
from foretail.models.drop.parameters_contract import holds


def check_reader(read: Callable[[Any], object], plain: Any, unknown: Any, named: str) -> str:
    """Run the contract of a reader, and return the sentence about the part that it does not use.

    AssertionError with the rule that does not hold.

    Parameters
    ----------
    read : reads an input, such as the file of a path
    plain : an input of which everything is used
    unknown : the same with one part that is not used
    named : a word by which a sentence has to name that part
    """
    assert callable(read), f"a reader must be a function of an input, not {read!r}"
    with holds("a reader must be able to read an input of which it uses everything"), telling() as of_plain:
        read(plain)
    left = [reading for reading in of_plain if reading.left_out]
    assert not left, f"a reader must tell nothing as left out where it uses everything, not: {left[0].sentence()}"
    try:
        with telling() as readings:
            read(unknown)
        with telling() as again:
            read(unknown)
        assert readings == again, "it must tell the same each time"
        sentences = [reading.sentence() for reading in readings]
    except ForetailError as error:
        sentences = [str(error)]
    of_part = [sentence for sentence in sentences if named in sentence]
    assert of_part, f"{named}, which a reader does not use, must be named, or the input refused by it, not: {sentences}"
    assert "\n" not in of_part[0], "it must tell in one sentence"
    return of_part[0]
