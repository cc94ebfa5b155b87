"""
The script is a few lines that ask torusrun for the words when you press Tab.

examples:
  torusrun completion bash > ~/.local/share/bash-completion/completions/torusrun
  torusrun completion fish > ~/.config/fish/completions/torusrun.fish
  torusrun completion zsh > ~/.torusrun.zsh    # and in ~/.zshrc: source ~/.torusrun.zsh
"""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Iterator, Sequence

from torusrun.orchestrator.base.errors import DONE, TorusrunError
from torusrun.orchestrator.cli.verb_list import VERBS, module_of, parser_of

TAKES_A_COMMAND = True  # the words typed so far, for which it prints what the last of them can be
# Without an answer each shell completes the names of files. No name is evaluated, whatever it contains.
SCRIPTS = {
    "bash": r"""_torusrun() {
    local answer
    COMPREPLY=()
    while IFS= read -r answer; do
        COMPREPLY+=("$answer")
    done < <(command torusrun completion bash -- "${COMP_WORDS[@]:0:COMP_CWORD+1}" 2>/dev/null)
}
complete -o filenames -o default -F _torusrun torusrun
""",
    "zsh": r"""autoload -Uz compinit
(( $+functions[compdef] )) || compinit
_torusrun() {
    local -a answers
    answers=("${(@f)$(command torusrun completion zsh -- "${(@)words[1,CURRENT]}" 2>/dev/null)}")
    if [[ -n ${answers[1]} ]]; then compadd -a answers; else _files; fi
}
compdef _torusrun torusrun
""",
    "fish": r"""function __torusrun_words
    set -l word (commandline -ct)
    set -l answers (command torusrun completion fish -- (commandline -opc) "$word" 2>/dev/null)
    if test (count $answers) -gt 0
        printf '%s\n' $answers
    else
        __fish_complete_path "$word"
    end
end
complete -c torusrun -f -a '(__torusrun_words)'
""",
}
RUNS = ("RUN", "HELD")  # the metavars of runs


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=tuple(SCRIPTS), help="the shell")


def run(args: argparse.Namespace) -> int:
    if args.command:
        print("".join(f"{word}\n" for word in words(args.command[1:])), end="")
    else:
        print(SCRIPTS[args.shell], end="")
    return DONE


def words(typed: Sequence[str]) -> list[str]:
    """What the last of the words after `torusrun` can be; nothing for a file, or a value that torusrun cannot know."""
    *before, word = typed or [""]
    if word in ("=", ":"):  # bash splits --option=value and RUN:ROLE into three words
        before, word = [*before, word], ""
    if before[-1:] == ["="]:
        before.pop()
    joined = f"{word.partition('=')[0]}=" if word.startswith("--") and "=" in word else ""
    if joined:
        before, word = [*before, joined[:-1]], word.removeprefix(joined)
    return [f"{joined}{answer}" for answer in dict.fromkeys(_possible(before, word)) if answer.startswith(word)]


def _possible(before: Sequence[str], word: str) -> Iterator[str]:
    if not before:
        yield from (*VERBS, "--help", "--version")
        return
    verb = before[0]
    if verb not in VERBS or "--" in before:
        return
    parser = parser_of(verb)
    option = parser._option_string_actions.get(before[-1])
    if before[-1] == ":":
        yield from _roles(before[-2:-1])
    elif option and option.nargs != 0:
        yield from _values(option, before[1:], word)
    elif word.startswith("-"):
        yield from (name for name, action in parser._option_string_actions.items() if action.help != argparse.SUPPRESS)
        yield from ["--"] if getattr(module_of(verb), "TAKES_A_COMMAND", False) else []
    else:
        for action in parser._actions:
            if not action.option_strings:
                yield from _values(action, before[1:], word)


def _values(action: argparse.Action, before: Sequence[str], word: str) -> Iterator[str]:
    """The values of an argument that torusrun knows, after the words `before`."""
    from torusrun.orchestrator.base.shipped import examples
    from torusrun.orchestrator.base.states import State
    from torusrun.orchestrator.forecast import constants
    from torusrun.training.recipe import files

    if action.choices:
        yield from map(str, action.choices)
    elif action.dest == "site":
        from torusrun.orchestrator.keys.load import site_folders

        yield from (path.stem for folder in site_folders() for path in sorted(folder.glob("*.yaml")))
    elif action.dest == "role" or action.metavar == "PORT":
        yield from _roles(before)
    elif action.metavar in RUNS:
        run, colon, _ = word.partition(":")
        yield from (f"{run}:{role}" for role in _roles([run])) if colon and action.dest == "after" else _runs()
    elif action.dest in ("gpu", "network"):
        yield from constants.table(f"{action.dest}s")
    elif action.metavar == "show":
        yield "show"
    elif action.metavar == "STATES":
        yield from (state.value.lower() for state in State)
    elif action.metavar == "EXAMPLE":
        yield from examples()
    elif action.metavar == "RECIPE":
        yield from files.names()


def _roles(words: Sequence[str]) -> Iterator[str]:
    """The roles of the last run among these words."""
    from torusrun.orchestrator.keys.main_role import main_name, services
    from torusrun.orchestrator.run.folder.index import find
    from torusrun.orchestrator.run.plan.plan_files import read_plan

    for word in reversed(words):
        with contextlib.suppress(TorusrunError):
            run = read_plan(find(word), 1).run
            yield from (main_name(run), *services(run)) if run.roles else ()
            return


def _runs() -> Iterator[str]:
    """The ids of the runs and of the sweeps, here and on login nodes."""
    from torusrun.orchestrator.keys.paths import state_folder

    yield "last"
    state = state_folder()
    here = os.listdir(state / "runs") if (state / "runs").is_dir() else []
    for run in sorted([*here, *(path.stem for path in (state / "remote").glob("*.json"))]):
        yield run
        if run.endswith(".0"):  # the first member of a sweep
            yield run.removesuffix(".0")
