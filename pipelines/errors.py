"""One sentence for every error that a user can cause."""

from __future__ import annotations

import difflib
import errno
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from types import MappingProxyType

import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import ConfigCompositionException, HydraException, MissingConfigException, OverrideParseException
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from foretail.core.errors import ForetailError, first_line
from foretail.sim_bridge.policies import POLICIES


class GateRefused(ForetailError):
    """A gate did not let a model through: everything worked, and the answer is no."""


class PointsFailed(ForetailError):
    """Points of a sweep failed; the others are done."""


BAD_INPUT = (ForetailError, HydraException, OmegaConfBaseException)
"""What a user can cause, beside what :func:`is_bad_input` knows; anything else is a defect of Foretail."""

_OF_THE_MACHINE = frozenset(
    {
        *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.ESTALE, errno.EPIPE),
        *(errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENAMETOOLONG),
    }
)


_OF_A_SETTING = re.compile(r"full_key: (\S+)")  # where OmegaConf converts an integer that no float64 can be
_NOT_DECIMAL = re.compile(r"Value '[-+]?0[xXoObB]\w+'")


def is_bad_input(error: BaseException | None) -> bool:
    """Whether a user or the machine caused `error`: a full disk, too little memory and the like, but no missing file.

    Files that settings name are opened where a ForetailError tells what is wrong with them. So any other file that is
    not there, or is something else, is one that Foretail should have made.
    """
    if isinstance(error, BAD_INPUT) or _is_out_of_memory(error):  # some of Hydra's are an OSError too
        return True
    if isinstance(error, OSError):
        return error.errno in _OF_THE_MACHINE
    return isinstance(error, OverflowError) and _OF_A_SETTING.search(str(error)) is not None


def sentence(
    error: BaseException, settings: Iterable[str] = (), of_stage: Mapping[str, str] = MappingProxyType({})
) -> str:
    """`error` as one line that ends with a full stop.

    Parameters
    ----------
    error : for which :func:`is_bad_input` holds
    settings : dotted names of all settings, to suggest the one that was meant
    of_stage : those of the stage at hand, with their types
    """
    return _one_line(_message(error, tuple(settings), of_stage))


def _message(error: BaseException, settings: tuple[str, ...], of_stage: Mapping[str, str]) -> str:
    if isinstance(error, OverrideParseException):
        return _unreadable(str(error.override), first_line(error))
    if isinstance(error, MissingConfigException):
        return _missing_config(error)
    if isinstance(error, ConfigCompositionException):
        return _composition(error, settings, of_stage)
    if isinstance(error, MissingMandatoryValue):
        name = str(error.full_key or first_line(error).rpartition(" ")[2])
        begin = "let its file begin with 'defaults: [base_scenario, /flow_sizes@background: websearch, _self_]'"
        return f"the setting {name} is missing: give {name}=..." + (
            f", or {begin}" if name.startswith("scenario.") else ""
        )
    if isinstance(error, OmegaConfBaseException):
        where = f"the setting {error.full_key}: " if error.full_key else ""
        return f"{where}{first_line(error)}"
    if _is_out_of_memory(error):
        return f"there is too little memory ({first_line(error)}): free some, or raise the limit (ulimit -v)"
    if isinstance(error, OSError):
        return _os_error(error)
    if isinstance(error, OverflowError) and (setting := _OF_A_SETTING.search(str(error))) is not None:
        return f"{setting[1]} is a number beyond any fraction: lower it"
    return str(error)


def unreadable_settings(error: Exception, folder: str | None) -> ForetailError:
    """What Hydra raised while it read files of settings, as an error that names the file and the place.

    Parameters
    ----------
    error : which :func:`is_bad_input` does not know
    folder : that the user gave, among whose files one is to blame
    """
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        place = f"line {mark.line + 1}, column {mark.column + 1}: {error.problem}"
        return ForetailError(f"{mark.name} is not valid YAML ({place}): correct it there")
    if isinstance(error, (UnicodeDecodeError, yaml.reader.ReaderError)):
        files = [path for path in sorted(Path(folder).rglob("*.yaml")) if not _is_text(path)] if folder else []
        named = ", ".join(map(str, files)) or "a file of settings"
        return ForetailError(f"{named} cannot be read as UTF-8 text: save it as UTF-8")
    if isinstance(error, RecursionError):
        return ForetailError("a file of settings includes itself: remove it from its own defaults list")
    return ForetailError(first_line(error))


def _is_text(path: Path) -> bool:
    try:
        return "\0" not in path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return False


def _is_out_of_memory(error: BaseException | None) -> bool:
    """Whether there was too little memory, also to load a library."""
    return isinstance(error, MemoryError) or (isinstance(error, ImportError) and "failed to map segment" in str(error))


def _missing_config(error: MissingConfigException) -> str:
    match = re.search(r"Could not (?:find|load) '([^']+)'", str(error))
    if match is None:
        return first_line(error)
    group, _, option = match[1].rpartition("/")
    known = sorted(name for name in error.options or _options(group) if not name.startswith("base_"))
    own = ", or name the folder of your own with --config-dir" if group in ("scenario", "predictor", "features") else ""
    choose = f"{group or 'config'}={option} is unknown: choose from {', '.join(known)}{own}"
    return choose if known else first_line(error)


def _options(group: str) -> Iterator[str]:
    """Names in a group of configs; Hydra does not give them for one of a list."""
    folder = resources.files("foretail.configs") / group
    if group and folder.is_dir():
        yield from (file.name.removesuffix(".yaml") for file in folder.iterdir() if file.name.endswith(".yaml"))
    if group == "policy":
        yield from POLICIES


def _composition(error: ConfigCompositionException, settings: tuple[str, ...], of_stage: Mapping[str, str]) -> str:
    cause = error.__cause__
    match = re.match(r"Could not (?:override|append to config|delete from config)[^']*'([^']+)'", str(error))
    several = re.match(r"Ambiguous value for argument '([^=]+)=(.*)'", str(error))
    if several is not None:
        name, values = several[1], several[2].strip("[]")
        kind = of_stage.get(name, "list")
        if kind.startswith(("list", "List", "Any")):
            remedy = f"write '{name}=[{values}]' for all of them"
        else:
            remedy = f"write {_quoted(name, values)} for one text" if kind.startswith("str") else f"give one {name}"
        return f"{name}={several[2]} are several values: {remedy}, or --multirun for one run with each"
    if match is None and isinstance(cause, OmegaConfBaseException):
        merged = re.match(r"Error merging override (.+)", str(error))
        reason = "write numbers in decimal digits" if _NOT_DECIMAL.match(str(cause)) else first_line(cause)
        if merged and "is not a ListConfig" in reason:
            name, _, value = merged[1].partition("=")
            reason = f"it is a list, so write '{name}=[{value}]'"
        return f"{f'cannot set {merged[1]}' if merged else first_line(error)}: {reason}"
    composing = re.match(r"In '([^']+)': \w+ raised while composing config:\n(.+)(?:\n +full_key: (\S+))?", str(error))
    if composing is not None:  # a file of settings
        return f"in {composing[1]}.yaml: {f'{composing[3]}: ' if composing[3] else ''}{composing[2].strip()}"
    if match is None:
        return first_line(error)
    name = re.split(r"[=@]", match[1])[0]
    if name in of_stage and isinstance(cause, OmegaConfBaseException) and cause.full_key:
        name = str(cause.full_key)  # of a setting in braces
    if of_stage.get(f"{name}s", "").startswith("list"):
        return f"unknown setting {name}: it is called {name}s and is a list, as in '{name}s=[1,2]'"
    if f"{name}s" in of_stage:
        return f"unknown setting {name}: did you mean {name}s?"
    here = list(dict.fromkeys(setting for setting in of_stage if setting.endswith(f".{name}")))
    if name in settings and here:
        return f"{name} is a setting of another stage: this one has {', '.join(here)}"
    if name in settings and name.startswith("predictor."):
        return f"{name} is a setting of another predictor: --help predictor lists those of this one"
    if name in settings:
        return f"{name} is a setting of another stage: --help lists those of this one"
    last = name.rpartition(".")[2]
    close = [
        found
        for known in (of_stage, settings)
        for found in (
            *difflib.get_close_matches(name, known, n=1, cutoff=0.7),
            *(setting for setting in known if setting.endswith(f".{last}")),
        )
    ]
    return f"unknown setting {name}: " + (f"did you mean {close[0]}?" if close else "--help lists the settings")


def _unreadable(override: str, reason: str) -> str:
    """What to do about an override that Hydra cannot parse: quote a value that is one text, or write name=value."""
    name, _, value = override.partition("=")
    remedy = f"quote its value twice, {_quoted(name, value)}"
    if value.startswith("["):
        remedy = f"close its brackets, and quote each text in it, as in {_quoted(name, 'a=b', '[]')}"
    try:
        OverridesParser.create().parse_override(f'{name}="x"')
    except HydraException:
        value = ""
    return f"cannot read the override {override!r}: " + (
        remedy if value and value[0] not in "{(\"'" else f"{reason}, write name=value"
    )


def _quoted(name: str, value: str, around: Sequence[str] = ("", "")) -> str:
    """A setting whose value is one text, for Hydra within quotes for the shell."""
    text = value.replace("\\", "\\\\").replace('"', '\\"')
    return shlex.quote(f'{name}={around[0]}"{text}"{around[1]}')


def _os_error(error: OSError) -> str:
    named = f" ({error.filename})" if error.filename else ""
    if error.errno == errno.ENOSPC:
        return f"no space is left on the disk{named}: free some, or set store_dir and hydra.run.dir to another disk"
    return f"{error.strerror or error}{named}" if error.strerror else f"{type(error).__name__}: {error}"


def _one_line(text: str) -> str:
    line = "; ".join(part.strip() for part in text.splitlines() if part.strip())
    return line if line.endswith((".", "?", "!")) else f"{line}."
