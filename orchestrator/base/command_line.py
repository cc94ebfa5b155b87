"""The command line of this process, as the provenance of a run keeps it: without values that may be secret."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

HIDDEN = "..."
HIDES = re.compile(r"((?:--[a-z-]+=)?\W*(?:env|setup|sweep)\b[^=]*=).*", re.DOTALL)  # as in --set env.NAME=VALUE
VARIABLE = re.compile(r"([^=]*=).*", re.DOTALL)  # as in --env NAME=VALUE

_words: tuple[str, ...] = ()


def note(words: Sequence[str]) -> None:
    """Keep the words that follow `torusrun`."""
    global _words
    _words = tuple(words)


def shown() -> list[str]:
    """The noted words, [] in a process other than `torusrun`.

    Values of `env`, `setup` and `sweep` are hidden, and the command after '--', which the run's plan has.
    """
    return list(_shown(_words))


def _shown(words: Sequence[str]) -> Iterator[str]:
    before = ""
    for word in words:
        if word == "--":
            yield from (word, HIDDEN)
            return
        option, equals, value = word.partition("=")
        if _is_env(before):
            yield VARIABLE.sub(rf"\1{HIDDEN}", word)
        elif equals and _is_env(option):
            hidden = VARIABLE.sub(rf"\1{HIDDEN}", value)
            yield f"{option}={hidden}"
        else:
            yield HIDES.sub(rf"\1{HIDDEN}", word)
        before = word


def _is_env(option: str) -> bool:
    """Whether this is --env, or an abbreviation of it."""
    return len(option) > len("--") and "--env".startswith(option)
