"""The P4 text and the entries read back: by a parser of their own, interpreted, and as trees for the proof."""
