"""One Hydra application per stage, and the ``foretail`` command that starts them."""
