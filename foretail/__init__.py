"""Learned buffer sharing for switches: ``foretail.api`` has what programs use, and the rooms have the rest."""


def __getattr__(name: str) -> str:
    if name != "__version__":
        raise AttributeError(f"module 'foretail' has no attribute {name!r}")
    from importlib.metadata import version

    return version("foretail")
