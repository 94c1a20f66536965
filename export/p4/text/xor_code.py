"""A P4_16 program of v1model for both ends of a link that loses packets: a block code with one coded packet, the XOR.

The sending end puts 4 bytes in front of every frame (number of the block, place in it), and sends the XOR of a block's
frames after it. The receiving end passes frames on as they come. It makes the one that is lost from the coded packet,
and throws the coded packet away if none or more than one is. Source: Pit-Claudel, thesis, section 3.3.1, for n = k + 1.
More coded packets need products in a field of 256 elements, which v1model has not.
"""

from __future__ import annotations

from foretail.core.errors import ForetailError
from foretail.export.templates import environment

WORD_BYTES = 256
"""p4c takes numbers of up to 2,048 bits."""
LONGEST_FRAME = 1536
LAST_PORT = 510


def xor_code(k: int, frame_bytes: int, outside_port: int = 0, link_port: int = 1) -> str:
    """Return the program. Clone session 1 of the switch must lead to `link_port`.

    ForetailError on a number out of range, or one port for both sides.

    Parameters
    ----------
    k : frames of a block, 1 to 255
    frame_bytes : of every frame, header included, 14 to 1,536; senders fill shorter ones
    outside_port : where frames come from and go to, 0 to 510
    link_port : of the lossy link, another one
    """
    for name, value, least, most in (
        ("k", k, 1, 255),
        ("frame_bytes", frame_bytes, 14, LONGEST_FRAME),
        ("outside_port", outside_port, 0, LAST_PORT),
        ("link_port", link_port, 0, LAST_PORT),
    ):
        if not least <= value <= most:
            raise ForetailError(f"{name} is {value}: give {least} to {most}")
    if outside_port == link_port:
        raise ForetailError(f"outside_port and link_port are both {link_port}: give the link a port of its own")
    words = [min(WORD_BYTES, frame_bytes - begin) * 8 for begin in range(0, frame_bytes, WORD_BYTES)]
    return (
        environment("foretail.export.p4.text")
        .get_template("xor_code_v1model.p4.j2")
        .render(k=k, words=list(enumerate(words)), outside_port=outside_port, link_port=link_port)
    )
