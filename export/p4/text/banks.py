"""The text of a program with two banks: two controls of one frame, and one around them that chooses by a number."""

from __future__ import annotations

from foretail.export.p4.planning.cost import Plan
from foretail.export.p4.planning.frame import Frame
from foretail.export.p4.text.names import check_control
from foretail.export.p4.text.render import (
    code_words,
    environment_of_p4,
    first_id,
    render_main,
    render_p4,
)
from foretail.export.p4.text.rows import ACTION_PREFIX, TABLE_PREFIX
from foretail.export.p4.text.syntax import CONTROL
from foretail.models.ensemble.ensemble import Ensemble

COUNTER_PREFIX = 0x12000000  # P4Runtime 1.3, section 6.3


def bank_controls(control: str = CONTROL) -> tuple[str, str]:
    """Return the names of the controls of both banks."""
    return f"{control}A", f"{control}B"


def render_banks(
    ensemble: Ensemble, plan: Plan, frame: Frame, name: str, control: str = CONTROL
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the first bank's files, with a model's entries, and those of the program around both, name -> text.

    The first are those of :func:`render_p4` for control ``<control>A``; then come ``<name>_b.p4``, the other bank;
    ``<name>_banks.p4``, the control that takes the place of a single predictor; and ``<name>_main.p4``, a program.
    """
    check_control(control)
    first, second = bank_controls(control)
    own = render_p4(ensemble, plan, name, "runtime", first, frame)
    other = render_p4(ensemble, plan, f"{name}_b", "runtime", second, frame)[f"{name}_b.p4"]
    number = first_id(f"{control} banks")
    values = {
        "arch": plan.profile.arch,
        "features": ensemble.features,
        "name": name,
        "control": control,
        "banks": (first, second),
        "width": plan.score_bits,
        "table_id": f"{TABLE_PREFIX | number:#010x}",
        "action_id": f"{ACTION_PREFIX | number:#010x}",
        "counter_id": f"{COUNTER_PREFIX | number:#010x}",
    }
    words = [f"{bank}_{word}" for bank in ("bank_a", "bank_b") for word in code_words(ensemble, plan)]
    around = {
        f"{name}_b.p4": other,
        f"{name}_banks.p4": environment_of_p4().get_template("banks.p4.j2").render(values),
        f"{name}_main.p4": render_main(
            ensemble.features, name, plan.profile.arch, plan.score_bits, control, words, banked=True
        ),
    }
    return own, around
