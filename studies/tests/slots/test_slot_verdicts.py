"""What experiments on generated arrivals conclude from their points."""

from __future__ import annotations

import pandas as pd

from foretail_studies.slots.policies import competitive_verdict, flips_verdict


def test_experiments_in_slots_conclude_from_their_points() -> None:
    points = pd.DataFrame(
        {
            "flip_probability": [0.0, 1.0],
            "transmitted_credence": [8, 4],
            "transmitted_dt": [7, 7],
            "lqd_over_credence": [1.25, 2.5],
            "lqd_over_dt": [1.5, 1.5],
        }
    )
    sentences = " ".join(flips_verdict(points))
    assert "1.25 when 0 % are inverted and 2.5 when 100 % are inverted" in sentences
    assert "Dynamic Thresholds is closest to LQD, at 1.5" in sentences
    ratios = pd.DataFrame({"opt_over_lqd": [1.1, 1.5], "opt_over_credence": [3.0, 2.0]})
    ratios = ratios.assign(transmitted_lqd=1, transmitted_credence=1)
    assert competitive_verdict(ratios) == [
        "The largest ratio of the optimum to a policy is least for LQD: 1.5.",
        "That of Credence is 3.",
    ]
