"""``policy=[{name: dt, alpha: 8}]``: several settings of a policy in one command. Costs two seconds."""

from __future__ import annotations

import pytest

from foretail.configs.plugins import with_policies
from foretail.configs.schema.packet_stages import EvaluateConfig
from foretail.core.errors import ForetailError
from foretail.pipelines.settings.compose import compose_settings
from foretail.sim_bridge.policy_settings import name_with_settings, settings_in_name


def test_each_has_a_row_of_its_own_and_the_policys_other_settings() -> None:
    given = "policy=[lqd,{name: dt, alpha: 8},{name: dt, alpha: 0.5},{name: credence, flip_probability: 0.01}]"
    found = compose_settings(EvaluateConfig, [given, "baselines=[]", "model=any"], "the test").policy
    assert list(found) == ["lqd", "dt_alpha_8", "dt_alpha_0.5", "credence_flip_probability_0.01"]
    assert [found["dt_alpha_8"].name, found["dt_alpha_8"].alpha, found["dt_alpha_0.5"].alpha] == ["dt", 8.0, 0.5]
    credence = found["credence_flip_probability_0.01"]
    assert (credence.predictor, credence.flip_probability) == ("library", 0.01)


def test_the_name_that_a_result_shows_means_the_same() -> None:
    written = with_policies(["policy=[{name: abm, alpha: 8, first_rtt_alpha: 1e-3}]", "seeds=[1]"])
    assert written == ["policy=[abm_alpha_8_first_rtt_alpha_0.001]", "seeds=[1]"]
    found = compose_settings(EvaluateConfig, [written[0], "baselines=[]"], "the test").policy
    assert (found["abm_alpha_8_first_rtt_alpha_0.001"].alpha, *found.values())[0] == 8.0


@pytest.mark.parametrize("settings", [{"alpha": 8}, {"alpha": 0.1, "low_pass_ns": 2**40}, {"alpha": 1e-300}])
def test_names_hold_their_settings(settings: dict[str, float]) -> None:
    assert settings_in_name(name_with_settings("reverie", settings)) == ("reverie", settings)


@pytest.mark.parametrize(
    "name", ["dt", "credence_accept", "credence_flip_0.001", "dt_alpha_", "dt_alpha_x", "best_alpha_8"]
)
def test_other_names_hold_none(name: str) -> None:
    assert settings_in_name(name) is None


WRONG = {
    "{name: dt, alfa: 8}": "dt heeds no number alfa: it has alpha, alpha_interval_ns, incast_alpha",
    "{alpha: 8}": "names no policy: write it as {name: dt, alpha: 8}",
    "{name: best}": "names no policy",
    "{name: [}": "names no policy",
    "{name: dt, alpha: x}": "whose alpha is not a finite number: write {name: dt, alpha: 8}",
    "{name: dt, alpha: .inf}": "whose alpha is not a finite number",
    "{name: dt, alpha: .nan}": "whose alpha is not a finite number",
    "{name: cs, alpha: 1}": "cs heeds no number alpha: it has none",
    "{name: dt, alpha: -1}": "alpha = -1.0 is out of range: it must be above 0",
}


@pytest.mark.parametrize("policy", WRONG)
def test_what_means_nothing_is_refused_in_one_sentence(policy: str) -> None:
    with pytest.raises(ForetailError) as refused:
        compose_settings(EvaluateConfig, [f"policy=[lqd,{policy}]", "baselines=[]"], "the test")
    assert WRONG[policy] in str(refused.value)
