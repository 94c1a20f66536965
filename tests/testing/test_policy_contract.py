"""The contract of policies: Foretail's own keep it, and headers that break it are told which rule they break."""

from __future__ import annotations

from pathlib import Path

import pytest

from foretail.sim_bridge.policies import OF_ARRIVALS
from foretail.testing import check_policy

RULE = """
#include <cstdint>

struct Rule : foretail::buffer::PolicyTraits {{
    template <class Queues>
    foretail::buffer::Outcome decide(const foretail::buffer::Arrival& arrival, const Queues& queues) {{
        using foretail::buffer::Outcome;
        {body}
        return queues.fits(arrival.size) ? Outcome::accepted : Outcome::buffer_full;
    }}
    std::int64_t seen = 0;
}};
"""


def rule(folder: Path, body: str) -> str:
    """A policy in a header, whose decision begins with `body`."""
    header = folder / "rule.hpp"
    header.write_text(RULE.format(body=body))
    return f"{header}:Rule"


@pytest.mark.parametrize("policy", OF_ARRIVALS)
def test_policies_keep_the_contract(policy: str) -> None:
    check_policy(policy)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "clause"),
    [
        (
            "if (2 * queues.length(queues.queue_of(arrival)) < queues.capacity()) return Outcome::accepted;",
            "answer every arrival: the policy Rule accepts a packet that does not",
        ),
        ("return Outcome::pushed_out;", "answers pushed_out, which says what becomes of a queued packet"),
        ("static int runs = 0; if (++runs % 7 == 0) return Outcome::over_threshold;", "the same arrivals, the same"),
        ("if (++seen == 1) return Outcome::over_threshold;", "a packet at an empty switch must be accepted"),
        ("if (queues.kapacity() == 1) return Outcome::accepted;", "the header must compile: .* line 8: .*kapacity"),
    ],
)
def test_the_contract_catches_policies_that_break_it(tmp_path: Path, body: str, clause: str) -> None:
    with pytest.raises(AssertionError, match=clause):
        check_policy(rule(tmp_path, body))


@pytest.mark.slow
def test_a_policy_of_ones_own_keeps_the_contract(tmp_path: Path) -> None:
    check_policy(rule(tmp_path, ""))


def test_a_name_that_is_none_is_told() -> None:
    with pytest.raises(AssertionError, match=r"red must be HEADER\.hpp:TYPE"):
        check_policy("red")
