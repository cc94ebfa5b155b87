"""Patterns that choose files of a run folder: --only 'checkpoints/last,*.csv'."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase

from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.keys.problems import shown
from torusrun.orchestrator.run.folder.checkpoints import newest
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.training.checkpoint.manifest import candidates, newest_complete

OF_CHECKPOINTS, LAST = "checkpoints", "last"


@dataclass(frozen=True)
class Pattern:
    """A path relative to a run folder, in which * and ? stand for a part of a name.

    Without a slash it is a name at any depth, unless it is `from_top`.
    """

    text: str
    parts: tuple[str, ...]
    from_top: bool

    def chosen(self, path: str) -> str:
        """The part of a path that matches: the file itself or a folder above it; '' if the pattern does not match."""
        names = path.split("/")
        for end in range(1, len(names) + 1):
            matched = names[:end] if self.from_top else names[end - 1 : end]
            if len(matched) == len(self.parts) and all(map(fnmatchcase, matched, self.parts)):
                return "/".join(names[:end])
        return ""

    @property
    def names_by_word(self) -> bool:
        """Whether it is 'checkpoints/last', whose name the machine of the run chooses."""
        return self.parts[:2] == (OF_CHECKPOINTS, LAST)

    def allows(self, path: str, *, is_folder: bool = False) -> bool:
        """Whether another machine may announce a path for this pattern; a folder also if it lies above a match."""
        if self.names_by_word:
            return Pattern(self.text, (OF_CHECKPOINTS, "*", *self.parts[2:]), True).allows(path, is_folder=is_folder)
        leads_there = not self.from_top or all(map(fnmatchcase, path.split("/"), self.parts))
        return bool(self.chosen(path)) or (is_folder and leads_there)


def parse(text: str) -> Pattern:
    """The pattern in a text. Raises UserError if it leads out of the run folder, or names a hidden file."""
    parts = tuple(part for part in text.strip().split("/") if part not in ("", "."))
    if not parts:
        raise UserError(f"{shown(text)} names no file: write a path in the run's folder, as in checkpoints/last")
    if ".." in parts:
        raise UserError(f"{shown(text)} is not below the run's folder: leave out '..'")
    if any(part.startswith(".") for part in parts):
        raise UserError(f"{shown(text)}: names with a leading dot are secrets and locks, and are not copied")
    return Pattern(text.strip(), parts, "/" in text.strip().rstrip("/"))


def parse_list(text: str) -> tuple[Pattern, ...]:
    """The patterns of --only, between commas; none for ''. Raises UserError like `parse`."""
    return tuple(map(parse, text.split(","))) if text else ()


def meant(run: RunFolder, pattern: Pattern) -> Pattern:
    """The pattern, with the newest complete checkpoint in place of 'checkpoints/last', unless an entry has this name.

    Raises UserError if the run has no complete checkpoint.
    """
    if not pattern.names_by_word or (run.checkpoints / LAST).exists():
        return pattern
    complete = newest_complete(run.checkpoints)
    foreign = None if candidates(run.checkpoints) else newest(run.checkpoints)
    chosen = complete.path if complete else foreign
    if chosen is None:
        raise UserError(f"{run.run_id} has no complete checkpoint: {shown(pattern.text)} names nothing")
    return Pattern(pattern.text, (OF_CHECKPOINTS, chosen.name, *pattern.parts[2:]), True)
