"""Splits a Dockerfile into its instructions, each with its line, its flags and its here-documents.

The rules are those of BuildKit (frontend/dockerfile/parser): comments and empty lines inside a continued instruction
disappear, and the lines of an instruction are joined without a line break.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from torusrun.orchestrator.base.errors import UserError
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
DIRECTIVE = re.compile(r"#\s*([A-Za-z][A-Za-z0-9]*)\s*=\s*(.+?)\s*")


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
    escape: str = field(default="\\", compare=False)

    def wrong(self, message: str) -> SpecError:
        """The error about this instruction."""
        return SpecError([Problem(self.mark, f"{self.word}: {message}")])

    def flag(self, name: str) -> str:
        """The value of a flag, '' without one."""
        return next((value for key, value in self.flags if key == name), "")

    def json(self) -> list[str] | None:
        """The words of the JSON form, as in CMD ["python", "train.py"]; None for another form."""
        try:
            found = json.loads(self.text) if self.text.startswith("[") else None
        except ValueError:
            return None
        return found if isinstance(found, list) and all(isinstance(word, str) for word in found) else None


def read(text: str, path: Path) -> list[Instruction]:
    """The instructions of a Dockerfile. Raises SpecError with the line of the first mistake."""
    lines = text.removeprefix("\ufeff").splitlines()
    return list(_read(lines, str(path), _escape(lines)))


def is_dockerfile(path: Path, text: str) -> bool:
    """Whether a file is a Dockerfile, by its name or its first instruction."""
    if path.suffix in (".yaml", ".yml", ".def"):
        return False
    first = next((line.split() for line in text.splitlines() if line.strip() and not line.startswith("#")), [])
    return is_name(path.name) or (len(first) > 1 and first[0].upper() in ("FROM", "ARG"))


def is_name(name: str) -> bool:
    """Whether the last part of a path is a usual name of Dockerfiles, as in train.Dockerfile or Dockerfile.cpu."""
    return re.fullmatch(r"(Dockerfile|Containerfile)(\..+)?|.+\.(?i:dockerfile)", name.rpartition("/")[2]) is not None


def _escape(lines: list[str]) -> str:
    """The character that continues a line, which a directive at the top can name."""
    for line in lines:
        match = DIRECTIVE.fullmatch(line.strip())
        if not match:
            break
        if match[1].lower() == "escape":
            return match[2]
    return "\\"


def _read(lines: list[str], source: str, escape: str) -> Iterator[Instruction]:
    at = 0
    while at < len(lines):
        start, at = at, at + 1
        if not lines[start].strip() or lines[start].lstrip().startswith("#"):
            continue
        pieces: list[str] = []
        goes_on = True
        at = start
        while goes_on and at < len(lines):
            line, at = lines[at], at + 1
            if pieces and (not line.strip() or line.lstrip().startswith("#")):
                continue
            goes_on = line.rstrip().endswith(escape)
            pieces.append(line.rstrip().removesuffix(escape) if goes_on else line.rstrip())
        found = _instruction(pieces, Mark(source, start + 1, 1), escape)
        documents = []
        for dash, quote, name in _begun(found):
            content, at = _document(lines, at, name, bool(dash), found)
            documents.append(Document(name, content, not quote))
        yield Instruction(
            found.word, found.text, found.mark, found.flags, tuple(documents), found.lines, escape
        )  # fmt: skip


def _instruction(pieces: list[str], mark: Mark, escape: str) -> Instruction:
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
    return Instruction(word, text, mark, tuple(flags), (), tuple(lines), escape)


def _begun(one: Instruction) -> list[tuple[str, str, str]]:
    """('-' or '', its quote, its name) of every here-document of an instruction: a word that begins with `<<`."""
    if one.word not in WITH_DOCUMENTS or "<<" not in one.text:
        return []
    from torusrun.orchestrator.images.definitions.dockerfile.words import split  # imported late: it imports jinja2

    try:
        found = [HERE.match(word) for word in split(one.text, one.escape)]
    except UserError as error:
        raise one.wrong(str(error)) from None
    return [(match[1], match[2], match[3]) for match in found if match]


def _document(lines: list[str], at: int, name: str, dash: bool, of: Instruction) -> tuple[str, int]:
    """(the content of a here-document that begins at a line, the number of the line after its end)."""
    found: list[str] = []
    for number in range(at, len(lines)):
        line = lines[number].lstrip("\t") if dash else lines[number]
        if line == name:
            return "".join(f"{line}\n" for line in found), number + 1
        found.append(line)
    raise of.wrong(f"its here-document has no end; write a line {name!r} after it")
