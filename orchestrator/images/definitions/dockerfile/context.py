"""The files that COPY and ADD take from the folder of a Dockerfile, without those that .dockerignore leaves out."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.images.definitions.dockerfile.instructions import Instruction
from torusrun.orchestrator.images.definitions.inputs import is_copied, refuse_loops
from torusrun.orchestrator.keys.problems import Mark, Problem, SpecError

NAMED = "'context' of an image file, or --context, names another folder"


class Context:
    """The folder from which a Dockerfile copies."""

    def __init__(self, folder: Path, dockerfile: Path) -> None:
        self.folder = folder
        own, common = dockerfile.with_name(f"{dockerfile.name}.dockerignore"), folder / ".dockerignore"
        place = own if own.is_file() else common
        text = place.read_text(encoding="utf-8", errors="replace") if place.is_file() else ""
        self._rules = []
        self._taken_back: list[tuple[str, str]] = []  # of every `!` rule: its beginning, and its pattern after that
        for number, line in enumerate(text.splitlines(), 1):
            rule = line.strip()
            try:
                self._rules += [_rule(rule)] if rule and not line.startswith("#") else []
            except re.error as error:
                raise SpecError([Problem(Mark(str(place), number, 1), f"{rule!r}: {error}")]) from None
            if rule.startswith("!"):
                start, *rest = re.split(r"([*?\[\\])", _inner(rule), maxsplit=1)
                self._taken_back.append((start, "".join(rest)))

    def find(self, pattern: str, step: Instruction) -> list[Path]:
        """The files and folders that a source of COPY names. Raises SpecError if it names none."""
        inner = os.path.normpath(pattern.lstrip("/") or ".")
        if inner.startswith(".."):
            raise step.wrong(f"{pattern}: it is outside {self.folder}, from which a Dockerfile copies; {NAMED}")
        if not re.search(r"[*?\[]", inner):
            paths = [self.folder / inner] if (self.folder / inner).exists() else []
        else:
            paths = sorted(self.folder.glob(inner))
        for path in paths:
            self._refuse_outside(path)
        # `files` also refuses links out of the folder.
        kept = [path for path in paths if ([*self.files(path)] if path.is_dir() else not self.ignores(path))]
        if not kept:
            left_out = ".dockerignore leaves it out, or it is an empty folder"
            raise step.wrong(f"{pattern}: {left_out if paths else f'{self.folder} has no such file'}; {NAMED}")
        return kept

    def _refuse_outside(self, path: Path) -> None:
        """Raise UserError for what lies behind a link out of the folder: a checkout of others could name any file."""
        real = os.path.realpath(path)
        if not Path(real).is_relative_to(os.path.realpath(self.folder)):
            raise UserError(
                f"{path}: this link leads to {real}, out of {self.folder}, from which a Dockerfile copies; put a copy "
                "into that folder, or leave the link out in .dockerignore"
            )

    def ignores(self, path: Path) -> bool:
        """Whether .dockerignore leaves a path out; the last rule that matches it or a folder above it counts."""
        name, ignored = str(path.relative_to(self.folder)), False
        for rule, back in self._rules:
            if rule.match(name):
                ignored = not back
        return ignored

    def _enters(self, folder: Path) -> bool:
        """Whether a file below a folder may be copied: it is not ignored, or a rule may take a file in it back."""
        name = f"{folder.relative_to(self.folder)}/"
        return not self.ignores(folder) or any(
            start.startswith(name) or (pattern and name.startswith(start)) for start, pattern in self._taken_back
        )

    def whole(self, path: Path) -> bool:
        """Whether all files of a folder are copied."""
        return path.is_file() or not self._rules

    def files(self, folder: Path) -> Iterator[Path]:
        """The files below a folder that are copied, those in targets of links within the context, too.

        Raises UserError for a link that leads out of the context, or to a folder that holds it.
        """
        for where, folders, names in os.walk(folder, followlinks=True):
            folders[:] = sorted(n for n in folders if is_copied(n) and self._enters(Path(where, n)))
            copied = sorted(n for n in names if is_copied(n) and not self.ignores(Path(where, n)))
            refuse_loops(folder, where, [*folders, *copied])
            for path in (Path(where, name) for name in (*folders, *copied)):
                if path.is_symlink():
                    self._refuse_outside(path)
            yield from (Path(where, name) for name in copied)


def _inner(line: str) -> str:
    return os.path.normpath(line.removeprefix("!").strip().lstrip("/"))


def _rule(line: str) -> tuple[re.Pattern[str], bool]:
    """(the pattern of the names that a line matches, whether it takes them back in)."""
    *above, last = _inner(line).split("/")
    folders = "".join("(?:.*/)?" if part == "**" else f"{_glob(part)}/" for part in above)
    name = ".*" if last == "**" else _glob(last)
    return re.compile(f"{folders}{name}(?:/.*)?$", re.DOTALL), line.startswith("!")


def _glob(part: str) -> str:
    """A part of a path with `*`, `?` and `[...]`, none of which match a slash."""
    pieces = re.findall(r"\\.|\[[^\]]*\]|.", part)
    classes = {piece: piece for piece in pieces if piece.startswith("[") and len(piece) > 1}
    known = {"*": "[^/]*", "?": "[^/]", **classes}
    return "".join(known.get(piece) or re.escape(piece.removeprefix("\\")) for piece in pieces)
