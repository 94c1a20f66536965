"""Command lines that another command does, each with the sentence that names it."""

from __future__ import annotations

from collections.abc import Sequence

ELSEWHERE = {
    "emulate": "evaluate network=emulator",
    "study": "run predictor_study",
    "search": "run predictor_search",
}
"""Words that are no command, and the command that does what they say."""
GATES = ("promote",)
"""Commands that have experiments of their own: what a gate simulates."""
NETWORKS = ("ns3", "emulator")
"""Values of the setting network that were sources of ``collect``."""
OPEN_LOOP = ("arrivals", "datasets")
"""Settings of given arrivals, which no network draws."""


def moved(word: str, arguments: Sequence[str]) -> str | None:
    """The sentence for a command line that another command does; None where this command does it."""
    given = dict(argument.lstrip("+").split("=", 1) for argument in arguments if "=" in argument)
    experiment = given.get("experiment")
    if experiment is not None and experiment != "null" and word not in GATES:
        return f"foretail {word} experiment={experiment} is called foretail run {experiment}."
    if word in ELSEWHERE:
        return f"foretail {word} is called foretail {ELSEWHERE[word]}, and its experiments foretail run NAME."
    if word == "collect" and given.get("source") in NETWORKS:
        return f"foretail collect source={given['source']} is called foretail collect network={given['source']}."
    for name in OPEN_LOOP:
        if word == "evaluate" and name in given:
            return f"foretail evaluate {name}={given[name]} is called foretail replay {name}={given[name]}."
    return None
