"""`completion`: the script for a shell's Tab key, made from the parser of the commands.

What stands there literally comes from `shtab`; what this machine has (runs, playbooks, inputs) the
script asks for while somebody types, by `omni-console completion values KIND`. No shell evaluates
what it is told: names come from files.
"""

from __future__ import annotations

import argparse
from argparse import Namespace
from collections.abc import Iterator

from console.common.errors import Exit
from console.frontends.cli.parser import parser_for
from console.frontends.cli.shell.values import KINDS

FILE = {"bash": "_shtab_compgen_files", "zsh": "_files", "fish": "(__fish_complete_path)"}
DIRECTORY = {
    "bash": "_shtab_compgen_dirs", "zsh": "_files -/", "fish": "(__fish_complete_directories)",
}  # fmt: skip
PLACES = {
    "RUN": "runs", "PLAYBOOK": "playbooks", "PLAYBOOK|DIR": "playbooks", "QUERY": "lessons",
    "SERVICE": "services", "SERVICE|STEP": "logs", "STEP": "steps",
    "INPUT": "input_names", "HOST": "hosts", "HOSTS": "some_hosts",
}  # fmt: skip
"""What an argument is called in the help → the kind of value that stands there."""
FILES = ("FILE", "FILE|URL", "PATH", "PATH|URL|REPO", "REPO[@REV]|URL|PATH")
ALSO_FILES = ("playbooks",)
"""Kinds in whose place a path may stand, too."""

BASH = """
_omni_values() {
  local program=${COMP_WORDS[0]/#\\~/$HOME}
  command -v -- "$program" >/dev/null || program=omni-console
  "$program" completion values "$1" "$2" "${COMP_WORDS[@]}" 2>/dev/null
}
"""
BASH_END = """
# bash takes "=" for the end of a word: the words are put together again, so that NAME=VALUE is one
_omni_console() {
  local -a whole=()
  local at=0 glue= i
  for i in "${!COMP_WORDS[@]}"; do
    if [[ ( -n $glue || ${COMP_WORDS[i]} == "=" ) && ${#whole[@]} -gt 0 ]]; then
      whole[${#whole[@]}-1]+=${COMP_WORDS[i]}
      [[ ${COMP_WORDS[i]} == "=" ]] && glue=1 || glue=
    else
      whole+=("${COMP_WORDS[i]}")
    fi
    (( i == COMP_CWORD )) && at=$(( ${#whole[@]} - 1 ))
  done
  local -a COMP_WORDS=("${whole[@]}")
  local COMP_CWORD=$at
  _shtab_omni_console "$@"
  local word=${COMP_WORDS[COMP_CWORD]}
  case ${COMPREPLY[0]-} in *=|*/) compopt -o nospace 2>/dev/null ;; esac
  if [[ $word == *=* && $COMP_WORDBREAKS == *=* ]]; then
    COMPREPLY=("${COMPREPLY[@]#"${word%%=*}="}")
  fi
}
complete -o bashdefault -F _omni_console omni-console
"""
ZSH = """
_omni_values() {
  local -a found open
  found=(${(f)"$(omni-console completion values "$1" "${(Q)PREFIX}" "${(@Q)words}" 2>/dev/null)"})
  open=(${(M)found:#*[=/]})
  found=(${found:#*[=/]})
  compadd -S '' -a open
  compadd -a found
}
"""
FISH = """
function _omni_values
  set -l current (commandline -ct)
  omni-console completion values $argv[1] "$current" (commandline -opc) 2>/dev/null
end
"""
PREAMBLE = {"bash": BASH, "zsh": ZSH, "fish": FISH}


def script(args: Namespace) -> int:
    """Print the script for a shell."""
    print(made(args.shell), end="")
    return int(Exit.OK)


def made(shell: str) -> str:
    """The script: complete with all commands that people use, and their options."""
    import shtab

    parser = parser_for([])
    for action in _arguments(parser):
        if completer := _completer(action):
            action.complete = completer  # type: ignore[attr-defined]
    preamble = PREAMBLE[shell] + "".join(_functions(shell))
    text = str(shtab.complete(parser, shell, root_prefix="omni_console", preamble=preamble))
    return f"{text.rstrip()}\n{BASH_END if shell == 'bash' else ''}"


def _arguments(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Every option and positional of a parser and its commands."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for subparser in action.choices.values():
                yield from _arguments(subparser)
        else:
            yield action


def _completer(action: argparse.Action) -> dict[str, str]:
    """What completes an argument, for each shell; empty for words that nobody can know."""
    metavar = action.metavar if isinstance(action.metavar, str) else ""
    if metavar in FILES:
        return FILE
    if metavar == "DIR":
        return DIRECTORY
    kind = "inputs" if "--input" in action.option_strings else PLACES.get(metavar, "")
    if not kind:
        return {}
    return {
        "bash": f"_omni_{kind}", "zsh": f"_omni_{kind}", "fish": f"(_omni_{kind})",
    }  # fmt: skip


def _functions(shell: str) -> Iterator[str]:
    """A function for each kind; `$1` is what bash has of the word so far."""
    for kind in KINDS:
        files = kind in ALSO_FILES
        if shell == "bash":
            more = '; _shtab_compgen_files "$1"' if files else ""
            yield f'_omni_{kind}() {{ _omni_values {kind} "$1"{more}; }}\n'
        elif shell == "zsh":
            yield f"_omni_{kind}() {{ _omni_values {kind}{'; _files' if files else ''} }}\n"
        else:
            more = "; __fish_complete_path" if files else ""
            yield f"function _omni_{kind}; _omni_values {kind}{more}; end\n"
