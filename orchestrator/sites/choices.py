"""The values of a site with their sources, and the choice among several: by an option, by the user, or by --yes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.keys.problems import printable
from torusrun.training.recipe.near import did_you_mean


class Certainty(IntEnum):
    """How certain a value is, the most certain first."""

    CHOSEN = 0  # by the user
    TOLD = 1  # by a command, now
    KNOWN = 2  # for this cluster, from its data file
    ASSUMED = 3


@dataclass(frozen=True)
class Setting:
    """One value of a site's file. `key` is dotted, as in node.ranks; `source` is the comment after it."""

    key: str
    value: Any
    source: str
    certainty: Certainty = Certainty.TOLD

    @property
    def comment(self) -> str:
        return f"assumed: {self.source}" if self.certainty is Certainty.ASSUMED else self.source


def surest(settings: Iterable[Setting]) -> dict[str, Setting]:
    """The most certain setting of each key; of equally certain settings, the first."""
    chosen: dict[str, Setting] = {}
    for setting in sorted(settings, key=lambda setting: setting.certainty):
        chosen.setdefault(setting.key, setting)
    return chosen


@dataclass(frozen=True)
class Chosen:
    """A chosen value, and how it was chosen, for the comment in the site's file."""

    value: str
    how: str


@dataclass(frozen=True)
class Choices:
    """The options of the command line by name, --yes, and a function that asks the user (None without a terminal)."""

    options: Mapping[str, str | None]
    yes: bool = False
    ask: Callable[[str], str] | None = None
    say: Callable[[str], None] = lambda text: print(text, file=sys.stderr)

    def one_of(self, what: str, option: str, fitting: Mapping[str, str], sensible: str, source: str) -> Chosen:
        """One of the names in `fitting`, whose values describe them; `source` is the command that listed them.

        Raises UserError if the option is none of them, or if no user can choose.
        """
        if given := self.options.get(option):
            if given not in fitting:
                known = f"{source} lists {', '.join(fitting) or 'none'}"
                raise UserError(f"--{option} {given}: there is no such {what}{did_you_mean(given, fitting)}; {known}")
            return Chosen(given, f"--{option}")
        if len(fitting) == 1:
            return Chosen(next(iter(fitting)), f"{source}: the only {what}")
        if self.yes:
            self.say(f"{what}: {printable(sensible)}, of {', '.join(map(printable, fitting))} (--{option} chooses)")
            return Chosen(sensible, f"{source}: one of {len(fitting)}, chosen by --yes")
        if self.ask is None:
            names = ", ".join(fitting)
            raise UserError(
                f"several answers fit for the {what}: {names}; name one with --{option}, or let --yes choose {sensible}"
            )
        return Chosen(self._asked(what, fitting, sensible), f"{source}: one of {len(fitting)}, chosen by you")

    def text(self, what: str, option: str, hint: str) -> Chosen:
        """Free text that is needed and has no default. Raises UserError if no user can give it."""
        if given := self.options.get(option):
            return Chosen(given, f"--{option}")
        if self.ask is None or self.yes:
            problem = f"the {what} is needed, and the scheduler does not report it"
            raise UserError(f"{problem}: name it with --{option} ({hint})")
        while not (answer := self._line(f"{what} ({hint}): ")):
            pass
        return Chosen(answer, "asked")

    def _asked(self, what: str, fitting: Mapping[str, str], sensible: str) -> str:
        names = list(fitting)
        for number, name in enumerate(names, 1):
            self.say(f"  {number}) {printable(name):20} {printable(fitting[name])}")
        while True:
            answer = self._line(f"{what} [{sensible}]: ") or sensible
            if answer in fitting:
                return answer
            if answer.isdecimal() and 1 <= int(answer) <= len(names):
                return names[int(answer) - 1]
            self.say(f"write a number from 1 to {len(names)}, or a name")

    def _line(self, prompt: str) -> str:
        assert self.ask
        try:
            return self.ask(prompt).strip()
        except EOFError:
            raise UserError("the input ended before all questions were answered; nothing was written") from None
