"""What can follow each verb, from its parser."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass

from torusrun.orchestrator.cli.verb_list import VERBS, module_of, parser_of

RUNS, SWEEPS, SITES, FILES, NOTHING = "runs", "sweeps", "sites", "files", ""
KINDS = {
    **dict.fromkeys(("RUN", "HELD", "RUN:PATH"), RUNS),
    "SWEEP": SWEEPS,
    **dict.fromkeys(("RUN.yaml", "FILE", "FOLDER", "DIR", "PATH", "LOCK", "IMAGE", "DEST"), FILES),
}  # by metavar


@dataclass(frozen=True)
class Candidates:
    """What a value can be: of a kind that the shell lists, or one of these words."""

    kind: str = NOTHING
    words: tuple[str, ...] = ()


@dataclass(frozen=True)
class CompletedOption:
    """An option of a verb; `value` is None if it takes none."""

    names: tuple[str, ...]
    help: str
    value: Candidates | None


@dataclass(frozen=True)
class CompletedVerb:
    """A verb with its options and its other words. `takes_a_command` says that a command may follow '--'."""

    name: str
    help: str
    options: tuple[CompletedOption, ...]
    values: tuple[Candidates, ...]
    takes_a_command: bool


def verbs() -> Iterator[CompletedVerb]:
    for name, text in VERBS.items():
        actions = [action for action in parser_of(name)._actions if action.help != argparse.SUPPRESS]
        yield CompletedVerb(
            name,
            text,
            tuple(_option(action) for action in actions if action.option_strings),
            tuple(_value(action) for action in actions if not action.option_strings),
            getattr(module_of(name), "TAKES_A_COMMAND", False),
        )


def shipped_sites() -> list[str]:
    from torusrun.orchestrator.keys.load import SHIPPED

    return sorted(path.stem for path in SHIPPED.glob("*.yaml"))


def _option(action: argparse.Action) -> CompletedOption:
    text = (action.help or "") % {**vars(action), "prog": "torusrun"}
    return CompletedOption(tuple(action.option_strings), text, None if action.nargs == 0 else _value(action))


def _value(action: argparse.Action) -> Candidates:
    if action.choices:
        return Candidates(words=tuple(map(str, action.choices)))
    if action.dest == "site":
        return Candidates(SITES)
    return Candidates(KINDS.get(str(action.metavar), NOTHING), _words(str(action.metavar), action.dest))


def _words(metavar: str, dest: str) -> tuple[str, ...]:
    """The words that a value can be, of those that torusrun knows; they are read when the script is made."""
    from torusrun.orchestrator.base.shipped import examples
    from torusrun.orchestrator.base.states import State
    from torusrun.orchestrator.forecast import constants
    from torusrun.orchestrator.sweeps.table import LARGER_IS_BETTER
    from torusrun.training.recipe import files

    if dest in ("gpu", "network"):
        return tuple(constants.table(f"{dest}s"))
    known = {
        "show": ("show",),
        "STATES": tuple(state.value.lower() for state in State),
        "EXAMPLE": tuple(examples()),
        "RECIPE": files.names(),
        "METRIC": tuple(LARGER_IS_BETTER),
    }
    return known.get(metavar, ())
