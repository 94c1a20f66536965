"""Names that a control in P4 may have."""

from __future__ import annotations

import re
from functools import cache
from importlib import resources

from foretail.core.errors import ForetailError

_CONTROL = re.compile(r"[A-Z][A-Za-z0-9_]{0,62}")  # P4's own words are all lower case
_LIBRARIES = """
    ActionProfile ActionSelector Alpm Atcam CRCPolynomial Checksum CloneType ComputeChecksum Counter CounterType
    Deparser Digest DirectCounter DirectLpf DirectMeter DirectRegister DirectRegisterAction DirectRegisterAction2
    DirectRegisterAction3 DirectRegisterAction4 DirectWred Egress EgressDeparserT EgressParserT EgressT Hash
    HashAlgorithm Ingress IngressDeparserT IngressParserT IngressT LearnAction LearnAction2 LearnAction3
    LearnAction4 Lpf MathUnit Meter MeterType MinMaxAction MinMaxAction2 MinMaxAction3 MinMaxAction4 Mirror
    MultiParserPipeline MultiParserSwitch NoAction PacketBlackbox Parser ParserCounter ParserPriority Pipeline
    Random Register RegisterAction RegisterAction2 RegisterAction3 RegisterAction4 RegisterParam Resubmit
    SelectorAction Switch V1MODEL_VERSION V1Switch VerifyChecksum Wred
"""
"""Of core.p4, v1model.p4 and tna.p4."""


def check_control(control: str) -> None:
    """Raise ForetailError on a control whose name is none in P4, or is taken in the programs around it."""
    if not _CONTROL.fullmatch(control):
        raise ForetailError(f"{control!r} cannot name a P4 control: use a capital letter, then letters, digits and _")
    if control in _taken():
        raise ForetailError(
            f"p4.control={control} is a name of P4's libraries or of the programs around the control: choose another, "
            f"such as My{control}"
        )


@cache
def _taken() -> frozenset[str]:
    """What the libraries declare, and every such word in the templates outside of comments."""
    templates = (resources.files("foretail.export.p4.text") / "templates").iterdir()
    texts = (re.sub(r"//[^\n]*|/\*.*?\*/|{#.*?#}", "", file.read_text(), flags=re.DOTALL) for file in templates)
    return frozenset(_LIBRARIES.split()).union(*(re.findall(r"\b[A-Z]\w*", text) for text in texts))
