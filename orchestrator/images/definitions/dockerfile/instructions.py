"""Splits a Dockerfile into its instructions, each with its line, its flags and its here-documents; and its words.

The rules are those of BuildKit (frontend/dockerfile/parser): comments and empty lines inside a continued instruction
disappear, and the lines of an instruction are joined without a line break.

Docker knows all values, since it has the base image. Here those of the base are unknown: a variable that no ENV or ARG
sets stays a variable, which the shell of the build expands.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.base.templates import Text
from torusrun.orchestrator.images.definitions.definition import shell
from torusrun.orchestrator.keys.problems import Mark, Problem, SpecError
from torusrun.training.recipe.near import did_you_mean

WORDS = (
    "ADD", "ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "FROM", "HEALTHCHECK", "LABEL", "MAINTAINER", "ONBUILD",
    "RUN", "SHELL", "STOPSIGNAL", "USER", "VOLUME", "WORKDIR",
)  # fmt: skip
WITH_FLAGS = ("ADD", "COPY", "FROM", "HEALTHCHECK", "RUN")
WITH_DOCUMENTS = ("ADD", "COPY", "RUN")
HERE = re.compile(r"""\d*<<(-?)(["']?)([A-Za-z_][A-Za-z0-9_.]*)\2""")  # at the beginning of a word
FLAG = re.compile(r"--([a-z][a-z-]*)(?:=(\S*))?(?:\s+|$)")
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
UNSAFE = re.compile(r"[\n\r\0]|\{\{|(?i:bootstrap:)")  # no quotes protect a default inside ${NAME:-...}
BRACED = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)(?:(:?[-+])((?:[^{}\\]|\\.|\$\{[^{}]*\})*))?\}", re.DOTALL)


@dataclass(frozen=True)
class Document:
    """A here-document: its name, its content, and whether variables in it are expanded."""

    name: str
    content: str
    expanded: bool


@dataclass(frozen=True)
class Instruction:
    """One instruction. `text` is all after its word and its flags, in one line; `lines` are the lines of `text`."""

    word: str
    text: str
    mark: Mark
    flags: tuple[tuple[str, str], ...] = ()
    documents: tuple[Document, ...] = ()
    lines: tuple[str, ...] = ()

    def wrong(self, message: str) -> SpecError:
        """The error about this instruction."""
        return SpecError([Problem(self.mark, f"{self.word}: {message}")])

    def flag(self, name: str) -> str:
        """The value of a flag, '' without one."""
        return next((value for key, value in self.flags if key == name), "")

    def json(self) -> list[str] | None:
        """The words of the JSON form, as in CMD ["python", "train.py"]; None for another form."""
        try:
            words = json.loads(self.text) if self.text.startswith("[") else None
        except ValueError:
            return None
        return words if isinstance(words, list) and all(isinstance(word, str) for word in words) else None


def read(text: str, path: Path) -> list[Instruction]:
    """The instructions of a Dockerfile. Raises SpecError with the line of the first mistake."""
    lines = text.removeprefix("\ufeff").splitlines()
    for number, line in enumerate(lines[:2], 1):  # '# syntax=...' may stand above it
        if re.match(r"(?i)#\s*escape\s*=\s*`", line):
            raise SpecError([Problem(Mark(str(path), number, 1), "'`' as on Windows: end lines that go on with '\\'")])
    return list(_read(lines, str(path)))


def _read(lines: list[str], source: str) -> Iterator[Instruction]:
    start = at = 0
    while at < len(lines):
        pieces: list[str] = []
        goes_on = True
        while goes_on and at < len(lines):
            line, at = lines[at].rstrip(), at + 1
            if line and not line.lstrip().startswith("#"):
                start = start if pieces else at
                pieces.append(line.removesuffix("\\"))
                goes_on = line.endswith("\\")
        if not pieces:
            return
        step = _instruction(pieces, Mark(source, start, 1))
        documents = []
        for dash, quote, name in _begun(step):
            content, at = _document(lines, at, name, bool(dash), step)
            documents.append(Document(name, content, not quote))
        yield replace(step, documents=tuple(documents))


def _instruction(pieces: list[str], mark: Mark) -> Instruction:
    match = re.match(r"\s*([A-Za-z]+)(?:\s+|$)", pieces[0])
    word = match[1].upper() if match else ""
    if not match or word not in WORDS:
        given = (pieces[0].split() or [""])[0]
        hint = did_you_mean(word or given, WORDS)
        raise SpecError([Problem(mark, f"{given!r} is not an instruction of a Dockerfile{hint}")])
    lines = [pieces[0][match.end() :], *pieces[1:]]
    text, flags = "".join(lines).strip(), []
    while word in WITH_FLAGS and (flag := FLAG.match(text)):
        flags.append((flag[1], flag[2] or ""))
        text, lines = text[flag.end() :], []  # the lines are for reading alone
    return Instruction(word, text, mark, tuple(flags), (), tuple(lines))


def _begun(step: Instruction) -> list[tuple[str, str, str]]:
    """('-' or '', its quote, its name) of every here-document of an instruction: a word that begins with `<<`."""
    if step.word not in WITH_DOCUMENTS or "<<" not in step.text:
        return []
    try:
        matches = [HERE.match(word) for word in split(step.text)]
    except UserError as error:
        raise step.wrong(str(error)) from None
    return [(match[1], match[2], match[3]) for match in matches if match]


def _document(lines: list[str], at: int, name: str, dash: bool, of: Instruction) -> tuple[str, int]:
    """(the content of a here-document that begins at a line, the number of the line after its end)."""
    content: list[str] = []
    for number in range(at, len(lines)):
        line = lines[number].lstrip("\t") if dash else lines[number]
        if line == name:
            return "".join(f"{line}\n" for line in content), number + 1
        content.append(line)
    raise of.wrong(f"its here-document has no end; write a line {name!r} after it")


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


def split(text: str) -> list[str]:
    """The words of a text, with their quotes. Raises UserError if a quote is not closed."""
    words, word, quote, at = [], "", "", 0
    while at < len(text):
        char = text[at]
        taken = text[at : at + 2] if char == "\\" and quote != "'" else char
        at += len(taken)
        if not quote and taken.isspace():
            words += [word] if word else []
            word = ""
            continue
        if taken in ("'", '"') and quote in ("", taken):
            quote = "" if quote else taken
        word += taken
    if quote:
        raise UserError(f"a {quote} is not closed")
    return [*words, *([word] if word else [])]


def expand(word: str, known: Known) -> Expansion:
    """A word without its quotes and with its variables expanded. Raises UserError for a modifier that is not known."""
    merged: list[str | Variable] = []
    for part in _parts(word, known):
        if isinstance(part, str) and merged and isinstance(merged[-1], str):
            merged[-1] += part
        elif part:
            merged.append(part)
    return Expansion(tuple(merged))


def _parts(word: str, known: Known) -> Iterator[str | Variable]:
    quote, at = "", 0
    while at < len(word):
        char = word[at]
        if char in ("'", '"') and quote in ("", char):
            quote, at = ("" if quote else char), at + 1
        elif char == "\\" and quote != "'" and at + 1 < len(word):
            kept = quote == '"' and word[at + 1] not in '"$\\'
            yield word[at : at + 2] if kept else word[at + 1]
            at += 2
        elif char == "$" and quote != "'":
            parts, length = _variable(word[at + 1 :], known)
            yield from parts
            at += 1 + length
        else:
            yield char
            at += 1


def _variable(rest: str, known: Known) -> tuple[tuple[str | Variable, ...], int]:
    """(the value of the variable with whose name `rest` begins, the length of its name)."""
    if name := NAME.match(rest):
        return _named(name[0], "", Expansion(), known), name.end()
    if not rest.startswith("{"):
        return ("$",), 0
    match = BRACED.match(rest)
    if not match:
        raise UserError(f"'${rest[:40]}' is not a variable as ${{NAME}}, ${{NAME:-value}} or ${{NAME:+value}}")
    return _named(match[1], match[2] or "", expand(match[3] or "", known), known), match.end()


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
