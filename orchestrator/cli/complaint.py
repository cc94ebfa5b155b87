"""What argparse finds wrong with the words of a verb, as one sentence that says what to write."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable

from torusrun.orchestrator.base.errors import UserError

TYPE_CHECKING = False  # as in verb_list
if TYPE_CHECKING:
    from typing import NoReturn

MOST_VERBS = 4  # in a message
Sentence = Callable[..., str]
SENTENCES: dict[str, Sentence] = {
    r"argument ([^:]*): invalid choice: (.*) \(choose from (.*)\)": lambda name, word, known: (
        f"{name}: it must be one of {known.replace(chr(39), '')}, not {word}"  # some Pythons quote them
    ),
    r"argument ([^:]*): invalid int value: (.*)": "{0}: it must be a whole number, not {1}".format,
    r"argument ([^:]*): invalid float value: (.*)": "{0}: it must be a number, not {1}".format,
    r"argument ([^:]*): expected .*": "{0}: its value is missing; write one that begins with '-' after '='".format,
    r"argument ([^:]*): not allowed with argument (.*)": "{0} and {1} exclude each other: leave one out".format,
    r"argument ([^:]*): ignored explicit argument (.*)": "{0}: it takes no value, but got {1}".format,
    r"argument ([^:]*): (.*)": "{0}: {1}".format,
}  # of Python 3.10 to 3.13


class Parser(argparse.ArgumentParser):
    """A parser whose errors are those of any other mistake. `verbs_with` are the verbs that have an option."""

    verbs_with: Callable[[str], list[str]] = staticmethod(lambda option: [])

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{self._sentence(message)}; `{self._help}` shows its options")

    @property
    def _help(self) -> str:
        return f"{self.prog} --help"

    def _sentence(self, message: str) -> str:
        verb = self.prog.partition(" ")[2] or self.prog
        if missing := re.fullmatch(r"the following arguments are required: (.*)", message):
            return f"{verb} needs {' and '.join(map(self._with_help, missing[1].split(', ')))}"
        for pattern, sentence in SENTENCES.items():
            if found := re.fullmatch(pattern, message, re.DOTALL):
                return sentence(*found.groups())
        if not (unknown := message.removeprefix("unrecognized arguments: ")) or unknown == message:
            return message
        word = unknown.split()[0]
        if not word.startswith("-"):
            return f"{verb}: {unknown!r} is one argument too many"
        option = word.partition("=")[0]
        return f"{verb} has no option {option}{self._other_verbs(option) or self._near(option)}"

    def _with_help(self, metavar: str) -> str:
        """A missing argument with what it is, as in 'RUN.yaml (the run file)'."""
        texts = {str(action.metavar or action.dest): action.help for action in self._actions}
        return f"{metavar} ({texts[metavar]})" if texts.get(metavar) else metavar

    def _near(self, option: str) -> str:
        from torusrun.training.recipe.near import did_you_mean

        return did_you_mean(option, (name for action in self._actions for name in action.option_strings))

    def _other_verbs(self, option: str) -> str:
        """'; submit and plan have it' for an option of other verbs, '' for one that no verb has."""
        having = self.verbs_with(option)
        return f"; {', '.join(having[:MOST_VERBS])} {'has' if len(having) == 1 else 'have'} it" if having else ""
