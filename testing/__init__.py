"""Contracts for plug-ins, in the manner of scikit-learn's ``check_estimator``: call one from a test of your own.

Each raises AssertionError that names the rule which does not hold, and returns None when all do. Foretail's own
predictors and targets pass through the same checks.

>>> from foretail.testing import check_predictor
>>> from foretail.models.drop.forest import RandomForest
>>> check_predictor(RandomForest)
"""

from __future__ import annotations

from foretail.models.demand.contract import check_demand_predictor
from foretail.models.drop.contract import check_predictor
from foretail.testing.policy import check_policy
from foretail.testing.reader import check_reader
from foretail.testing.scheduler import check_scheduler
from foretail.testing.target import check_target
from foretail.testing.threshold_rule import check_threshold_rule
from foretail.testing.workload import check_workload

__all__ = [
    "check_demand_predictor",
    "check_policy",
    "check_predictor",
    "check_reader",
    "check_scheduler",
    "check_target",
    "check_threshold_rule",
    "check_workload",
]
