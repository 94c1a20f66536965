"""The tokens of an emitted control: what stands in its one include guard, without comments."""

from __future__ import annotations

import re

from foretail.export.p4.text.syntax import refuse

_TOKEN = re.compile(
    r"\s*(?:(\d+w(?:0x[0-9a-fA-F]+|\d+)|0x[0-9a-fA-F]+|\d+)"
    r'|(@?[A-Za-z_]\w*|"[\w=,.+-]*")'
    r"|(&&&|\|[-+]\||\+\+|\.\.|[-+&(){}\[\]<>=;:,.?@]))"
)
_COMMENT = re.compile(r"//[^\n]*")
_GUARDED = re.compile(r"\s*#ifndef ([A-Z][A-Z0-9_]*)\n#define \1\n([^#]*)\n#endif\s*")


def tokens_of(text: str) -> list[str]:
    """Return the tokens, in order; ProofError on a text outside of an include guard, or on what is not a token."""
    guarded = _GUARDED.fullmatch(_COMMENT.sub(" ", text))
    if guarded is None or "\\" in text:  # a backslash would carry a comment on to the next line
        refuse("its text is not the inside of one include guard")
    code, tokens, at = guarded[2].rstrip(), list[str](), 0
    while at < len(code):
        token = _TOKEN.match(code, at)
        if token is None:
            refuse(f"at {code[at : at + 20].strip()!r}")
        tokens.append(token[1] or token[2] or token[3])
        at = token.end()
    if guarded[1] in tokens:
        refuse("the include guard is a name of the program")
    return tokens
