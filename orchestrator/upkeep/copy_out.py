"""Copies single files and folders of a run into a folder that exists. Each appears whole, or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from torusrun.orchestrator.base import private
from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.keys.paths import absolute
from torusrun.orchestrator.run.folder.patterns import Pattern
from torusrun.orchestrator.upkeep.collect import not_copied, partial_copy
from torusrun.training.checkpoint.manifest import step_of
from torusrun.training.files.below import Below


@dataclass(frozen=True)
class ChosenFiles:
    """Files of a run that are to be copied."""

    text: str  # as the user wrote it
    pattern: Pattern  # chooses the files below the folder of the run
    copy: Callable[[Below], None]  # into a folder, with their paths in the run; it continues a copy
    named_elsewhere: bool = False  # a login node chose the names: they replace nothing but checkpoints


def copy_out(asked: Sequence[ChosenFiles], to: Path) -> list[Path]:
    """Copy the chosen files into the folder `to`, by their own names; the new paths.

    A file that exists is replaced, and no link is followed below `to`. Raises UserError if two files would get the same
    name, SiteError if the copy fails or strangers may write where they go: the same call then continues.
    """
    folder = absolute(to)
    with (
        not_copied(f"{folder}: not copied"),
        private.trusted(folder) as beside,
        partial_copy(beside, "new", "\n".join(one.text for one in asked)) as partial,
    ):
        try:
            moves = _moves([path for number, one in enumerate(asked) for path in _copied(one, partial, str(number))])
            for name, source in moves.items():
                if asked[int(source.partition("/")[0])].named_elsewhere:
                    _refuse_to_replace(folder / name)
        except UserError:
            beside.remove(partial.path.name)
            raise
        for name, source in moves.items():
            _put(beside, f"{partial.path.name}/{source}", name)
        beside.remove(partial.path.name)
    return [folder / name for name in moves]


def _copied(asked: ChosenFiles, partial: Below, part: str) -> list[str]:
    """Copy the chosen files into the folder `part`; their names below `partial`. Raises UserError for none."""
    with partial.folder(part, 0o700) as into:
        asked.copy(into)
        found = sorted(name for name, _ in into.entries() if _is_chosen(asked.pattern, name))
    if not found:
        raise UserError(f"{asked.text}: nothing there can be copied")
    return [f"{part}/{name}" for name in found]


def _is_chosen(pattern: Pattern, name: str) -> bool:
    """True for a file or folder that the pattern itself matches, False for what lies in such a folder or above it."""
    return name.count("/") + 1 == len(pattern.parts) if pattern.names_by_word else pattern.chosen(name) == name


def _moves(found: Sequence[str]) -> dict[str, str]:
    """The files or folders by their new names. Raises UserError if two would have the same."""
    moves: dict[str, str] = {}
    for source in found:
        name = os.path.basename(source)
        if name in moves:
            raise UserError(f"two files would both be {name}: write ./{name} for that at the top, or name a new folder")
        moves[name] = source
    return moves


def _refuse_to_replace(path: Path) -> None:
    """Raise UserError if there is a file or folder at a path, other than a checkpoint of ours."""
    if os.path.lexists(path) and step_of(path.name) is None:
        raise UserError(f"{path} exists, and the login node chose this name: give a new folder for the copy")


def _put(beside: Below, source: str, target: str) -> None:
    """Move a file or a folder; into a folder that exists, each of its entries. A link to a folder is refused."""
    if not beside.is_folder(source) or beside.status(target) is None:
        return beside.move(source, target)
    with beside.folder(source) as inner, beside.folder(target):
        names = sorted(os.listdir(inner.descriptor))
    for name in names:
        _put(beside, f"{source}/{name}", f"{target}/{name}")
