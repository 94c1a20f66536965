"""Completion of words in a shell: ``eval "$(foretail completion bash)"``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from foretail.configs.schema.stages import STAGES as SCHEMAS
from foretail.pipelines.command.reference import groups_of, settings_of
from foretail.pipelines.experiment.catalog import command_of, experiments
from foretail.pipelines.stage import Command, stage_command
from foretail.pipelines.stages import STAGES

FLAGS = ("--help", "--multirun", "--cfg", "--config-dir", "--debug")
# The shell cuts words at '='; what is completed is the part behind the last one.
_BASH = """\
_foretail() {
  local line=${COMP_LINE:0:COMP_POINT}
  local word=${line##*[[:space:]]}
  local found cut=
  [[ $word != *=* ]] || cut=${word%"${word##*=}"}
  COMPREPLY=()
  while IFS= read -r found; do
    COMPREPLY+=("${found#"$cut"}")
  done < <(foretail completion words "$line" 2>/dev/null)
  [[ ${COMPREPLY[0]-} != *= ]] || compopt -o nospace
}
complete -o default -F _foretail foretail
"""
# zsh does not cut words at '='; where there is nothing to complete, it names files, behind the '=' too.
_ZSH = """\
_foretail() {
  local -a found whole open
  found=(${(f)"$(foretail completion words "${(j: :)words[1,CURRENT-1]} $PREFIX" 2>/dev/null)"})
  open=(${(M)found:#*=}) whole=(${found:#*=})
  (( $#open )) && compadd -Q -S '' -a open
  (( $#whole )) && compadd -Q -a whole
  (( $#found )) && return
  compset -P '*='
  _files
}
(( $+functions[compdef] )) || { autoload -Uz compinit && compinit }
compdef _foretail foretail
"""
SCRIPTS = {"bash": _BASH, "zsh": _ZSH}


def words(line: str, commands: Sequence[str]) -> Iterator[str]:
    """Whole words that the last word of a line may become; nothing where the shell should name files."""
    *before, word = line.split(" ")
    given = [part for part in before if part]
    if len(given) <= 1:
        yield from (name for name in (*STAGES, *commands, "--help", "--version") if name.startswith(word))
    elif given[1] == "run" and len(given) == 2:
        yield from (name for name in experiments() if name.startswith(word))
    elif given[1] == "run" and given[2] in experiments():
        yield from (completed for completed in _of_command(command_of(given[2]), word) if completed.startswith(word))
    elif given[1] in SCHEMAS:
        yield from (completed for completed in _of_command(stage_command(given[1]), word) if completed.startswith(word))


def _of_command(command: Command, word: str) -> Iterator[str]:
    name, has_value, _ = word.partition("=")
    if not has_value and word.startswith("-"):
        yield from FLAGS
        return
    settings = list(settings_of(command))  # before the groups: it registers their options
    groups = dict(groups_of(command))
    if has_value:
        of_setting = [option for one in settings if one.name == name for option in one.options]
        yield from (f"{name}={option}" for option in groups.get(name, of_setting))
        return
    yield from (f"{group}=" for group in groups)
    yield from (f"{one.name}=" for one in settings if one.default is not None)
