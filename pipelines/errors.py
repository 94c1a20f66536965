"""One sentence for every error that a user can cause."""

from __future__ import annotations

import dataclasses
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

from foretail.configs.schema.policies import Policy
from foretail.core.errors import ForetailError, first_line
from foretail.core.files import OTHER_FOLDER
from foretail.sim_bridge.policies import POLICIES


class GateRefused(ForetailError):
    """A gate did not let a model through: everything worked, and the answer is no."""


class PointsFailed(ForetailError):
    """Points of a sweep failed; the others are done."""


BAD_INPUT = (ForetailError, HydraException, OmegaConfBaseException)
"""Errors that a user can cause, beside what :func:`is_bad_input` knows; anything else is a defect of Foretail."""

_OF_THE_MACHINE = frozenset(
    {
        *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.ESTALE, errno.EPIPE),
        *(errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENAMETOOLONG),
    }
)


_OF_A_SETTING = re.compile(r"full_key: (\S+)")  # where OmegaConf converts an integer that no float64 can be
_NOT_DECIMAL = re.compile(r"Value '[-+]?0[xXoObB]\w+'")
_NOT_OF_TYPE = re.compile(r"Value '(.*)' of type '\w+' could not be converted to (Integer|Float)")
_NUMBERS = {"Integer": "a whole number: write digits alone", "Float": "a number: write digits with a decimal point"}
_OWN = ("scenario", "predictor", "features")
"""Groups of which a user has options of their own."""


def is_bad_input(error: BaseException | None) -> bool:
    """True if a user or the machine caused `error`: a full disk, too little memory and the like, but no missing file.

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
        return _unreadable(str(error.override))
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
    """Turn what Hydra raised while it read files of settings into an error that names the file and the place.

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
    """True if there was too little memory, also to load a library."""
    return isinstance(error, MemoryError) or (isinstance(error, ImportError) and "failed to map segment" in str(error))


def _missing_config(error: MissingConfigException) -> str:
    match = re.search(r"Could not (?:find|load) '([^']+)'", str(error))
    if match is None:
        return first_line(error)
    group, _, option = match[1].rpartition("/")
    top, stem = group.partition("/")[0], option.removesuffix(".yaml")
    if top in _OWN and (group != top or stem != option):
        advice = f"keep it as FOLDER/{top}/{stem}.yaml, and give --config-dir FOLDER {top}={stem}"
        return f"{top} takes a name, not a file: {advice}"
    known = sorted(name for name in error.options or _options(group) if not name.startswith("base_"))
    own = f", or give --config-dir FOLDER, where FOLDER/{group}/{option}.yaml is your own" if group in _OWN else ""
    own += ", or install the package that offers it" if group == "predictor" else ""
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
        reason = _in_words(str(cause))
        if merged and "is not a ListConfig" in reason:
            name, _, value = merged[1].partition("=")
            reason = f"it is a list, so write '{name}=[{value}]'"
        return f"{f'cannot set {merged[1]}' if merged else first_line(error)}: {reason}"
    composing = re.match(r"In '([^']+)': \w+ raised while composing config:\n(.+)(?:\n +full_key: (\S+))?", str(error))
    if composing is not None:  # a file of settings
        reason = _in_words(composing[2].strip())
        if composing[3] and reason.startswith("Key '"):
            reason = _close(composing[3], settings, of_stage)
        return f"in {composing[1]}.yaml: {f'{composing[3]}: ' if composing[3] else ''}{reason}"
    if match is None:
        return first_line(error)
    name = re.split(r"[=@]", match[1])[0]
    if name in of_stage and isinstance(cause, OmegaConfBaseException) and cause.full_key:
        name = str(cause.full_key)  # of a setting in braces
    if of_stage.get(f"{name}s", "").startswith("list"):
        return f"unknown setting {name}: it is called {name}s and is a list, as in '{name}s=[1,2]'"
    if name.startswith("policy."):
        owner, _, number = name.removeprefix("policy.").rpartition(".")
        meant = difflib.get_close_matches(number, [field.name for field in dataclasses.fields(Policy)], n=1)
        which = (
            f"did you mean policy.{owner or 'NAME'}.{meant[0]}?" if meant else "--help policy lists those of a policy"
        )
        return f"unknown setting {name}: {which}"
    if f"{name}s" in of_stage:
        return f"unknown setting {name}: did you mean {name}s?"
    here = list(dict.fromkeys(setting for setting in of_stage if setting.endswith(f".{name}")))
    if name in settings and here:
        return f"{name} is a setting of another stage: this one has {', '.join(here)}"
    if name in settings and name.startswith("predictor."):
        return f"{name} is a setting of another predictor: --help predictor lists those of this one"
    if name in settings:
        near = difflib.get_close_matches(name, of_stage, n=1, cutoff=0.7)
        named = f"did you mean {near[0]}?" if near else "--help lists those of this one"
        return f"{name} is a setting of another stage: {named}"
    return f"unknown setting {name}: {_close(name, settings, of_stage)}"


def _in_words(reason: str) -> str:
    """Advice where OmegaConf cannot convert a value."""
    if _NOT_DECIMAL.match(reason):
        return "write numbers in decimal digits"
    wrong = _NOT_OF_TYPE.match(reason)
    return f"{wrong[1]!r} is not {_NUMBERS[wrong[2]]}, without a unit" if wrong else reason.splitlines()[0]


_OF_LIBRARIES = {
    "n_estimators": "trees",
    "num_trees": "trees",
    "num_boost_round": "trees",
    "max_depth": "depth",
    "eta": "learning_rate",
    "lr": "learning_rate",
    "random_state": "seed",
    "n_jobs": "jobs",
}
"""Names of scikit-learn, XGBoost and LightGBM for parameters of predictors."""


def _close(name: str, settings: tuple[str, ...], of_stage: Mapping[str, str]) -> str:
    """The setting that was meant, or where all are listed."""
    group, _, last = name.rpartition(".")
    if group == "predictor" and last in _OF_LIBRARIES:
        return f"it is called predictor.{_OF_LIBRARIES[last]} here"
    close = [
        meant
        for known in (of_stage, settings)
        for meant in (
            *difflib.get_close_matches(name, known, n=1, cutoff=0.7),
            *(setting for setting in known if setting.endswith(f".{last}")),
        )
    ]
    return f"did you mean {close[0]}?" if close else "--help lists the settings"


def _unreadable(override: str) -> str:
    """Advice on an override that Hydra cannot parse: quote a value that is one text, or write name=value."""
    name, _, value = override.partition("=")
    if not value or (value[0] in "[{" and value[-1] not in "]}"):
        if "=" not in override:
            return f"cannot read {override!r}: write name=value, and quote a value that has spaces"
        return f"cannot read {override!r}: close its brackets, and quote the whole setting where it has spaces"
    remedy = f"quote its value twice, {_quoted(name, value)}"
    if value.startswith("["):
        remedy = f"close its brackets, and quote each text in it, as in {_quoted(name, 'a=b', '[]')}"
    try:
        OverridesParser.create().parse_override(f'{name}="x"')
    except HydraException:
        value = ""
    return f"cannot read the override {override!r}: " + (
        remedy if value and value[0] not in "{(\"'" else "write name=value, with a name that --help lists"
    )


def _quoted(name: str, value: str, around: Sequence[str] = ("", "")) -> str:
    """A setting whose value is one text, for Hydra within quotes for the shell."""
    text = value.replace("\\", "\\\\").replace('"', '\\"')
    return shlex.quote(f'{name}={around[0]}"{text}"{around[1]}')


def _os_error(error: OSError) -> str:
    named = f" ({error.filename})" if error.filename else ""
    if error.errno == errno.ENOSPC:
        return f"no space is left on the disk{named}: free some, or set store_dir and hydra.run.dir to another disk"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS) and error.filename:
        return f"{error.strerror} ({error.filename}): {OTHER_FOLDER}"
    return f"{error.strerror or error}{named}" if error.strerror else f"{type(error).__name__}: {error}"


def _one_line(text: str) -> str:
    line = "; ".join(part.strip() for part in text.splitlines() if part.strip())
    return line if line.endswith((".", "?", "!")) else f"{line}."
