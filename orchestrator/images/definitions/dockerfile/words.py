"""Words of a Dockerfile with quotes and variables, as Docker expands them, and as words of a shell.

Docker knows all values, since it has the base image. Here those of the base are unknown: a variable that no ENV or ARG
sets stays a variable, which the shell of the build expands.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.base.templates import Text
from torusrun.orchestrator.images.definitions.quoting import shell

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
UNSAFE = re.compile(r"[\n\r\0]|\{\{|(?i:bootstrap:)")  # no quotes protect a default inside ${NAME:-...}
BRACED = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)(?:(:?[-+])((?:[^{}\\]|\\.|\$\{[^{}]*\})*))?\}", re.DOTALL)


@dataclass(frozen=True)
class Variable:
    """A variable that the shell expands, with its modifier, as in `${PATH}` or `${PATH:-/bin}`."""

    text: str


@dataclass(frozen=True)
class Expansion:
    """A text with the variables in it whose values are unknown."""

    parts: tuple[str | Variable, ...] = ()

    @property
    def plain(self) -> str | None:
        """The text, or None if a part of it is unknown."""
        return None if any(isinstance(part, Variable) for part in self.parts) else "".join(map(str, self.parts))

    def shell(self) -> Text:
        """One word of a shell that expands to this value. Raises UserError for a NUL."""
        words = (f'"{part.text}"' if isinstance(part, Variable) else str(shell(part)) for part in self.parts)
        return Text("".join(words) or "''")


Known = Mapping[str, "str | None"]
"""The variables that ENV and ARG have set; None if only the shell of the build knows the value."""


def split(text: str, escape: str = "\\") -> list[str]:
    """The words of a text, with their quotes. Raises UserError if a quote is not closed."""
    found, word, quote, at = [], "", "", 0
    while at < len(text):
        char = text[at]
        taken = text[at : at + 2] if char == escape and quote != "'" else char
        at += len(taken)
        if not quote and taken.isspace():
            found += [word] if word else []
            word = ""
            continue
        if taken in ("'", '"') and quote in ("", taken):
            quote = "" if quote else taken
        word += taken
    if quote:
        raise UserError(f"a {quote} is not closed")
    return [*found, *([word] if word else [])]


def expand(word: str, known: Known, escape: str = "\\") -> Expansion:
    """A word without its quotes and with its variables expanded. Raises UserError for a modifier that is not known."""
    merged: list[str | Variable] = []
    for part in _parts(word, known, escape):
        if isinstance(part, str) and merged and isinstance(merged[-1], str):
            merged[-1] += part
        elif part:
            merged.append(part)
    return Expansion(tuple(merged))


def _parts(word: str, known: Known, escape: str) -> Iterator[str | Variable]:
    quote, at = "", 0
    while at < len(word):
        char = word[at]
        if char in ("'", '"') and quote in ("", char):
            quote, at = ("" if quote else char), at + 1
        elif char == escape and quote != "'" and at + 1 < len(word):
            kept = quote == '"' and word[at + 1] not in f'"${escape}'
            yield word[at : at + 2] if kept else word[at + 1]
            at += 2
        elif char == "$" and quote != "'":
            parts, length = _variable(word[at + 1 :], known, escape)
            yield from parts
            at += 1 + length
        else:
            yield char
            at += 1


def _variable(rest: str, known: Known, escape: str) -> tuple[tuple[str | Variable, ...], int]:
    """(the value of the variable with whose name `rest` begins, the length of its name)."""
    if name := NAME.match(rest):
        return _named(name[0], "", Expansion(), known), name.end()
    if not rest.startswith("{"):
        return ("$",), 0
    match = BRACED.match(rest)
    if not match:
        raise UserError(f"'${rest[:40]}' is not a variable as ${{NAME}}, ${{NAME:-value}} or ${{NAME:+value}}")
    return _named(match[1], match[2] or "", expand(match[3] or "", known, escape), known), match.end()


def _named(name: str, modifier: str, other: Expansion, known: Known) -> tuple[str | Variable, ...]:
    if name not in known or (value := known[name]) is None:
        inner = "".join(p.text if isinstance(p, Variable) else re.sub(r'([\\"$`}])', r"\\\1", p) for p in other.parts)
        if UNSAFE.search(inner):
            raise UserError(f"{inner!r} cannot be the default of ${name}: a definition would read it as its own text")
        return (Variable(f"${{{name}{modifier}{inner}}}"),)
    given = bool(value) if modifier.startswith(":") else True
    if modifier.endswith("+"):
        return other.parts if given else ()
    return other.parts if modifier and not given else (value,)
