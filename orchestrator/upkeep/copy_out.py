"""Copies single files and folders out of runs: `torusrun cp RUN:PATH TO`. Each appears whole, or not at all."""

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
from torusrun.training.counted import counted
from torusrun.training.files.below import Below


@dataclass(frozen=True)
class ChosenFiles:
    """Files of a run that are to be copied: the words of the user, the pattern that chooses them below the folder of
    the run, and the function that copies them into a folder, with their paths in the run. It continues a copy.
    """

    text: str
    pattern: Pattern
    copy: Callable[[Below], None]
    named_elsewhere: bool = False  # a login node chose the names: they replace nothing but checkpoints


def copy_out(asked: Sequence[ChosenFiles], to: str) -> list[Path]:
    """Copy the chosen files into the folder `to`, or one file or folder under this new name; the new paths.

    A file that exists is replaced, and no link is followed below `to`. Raises UserError if two files would get the same
    name, SiteError if the copy fails or strangers may write where they go: the same call then continues.
    """
    target = absolute(to)
    folder, name = (target, "new") if target.is_dir() else (target.parent, target.name)
    with (
        not_copied(f"{target}: not copied"),
        private.trusted(folder) as beside,
        partial_copy(beside, name, "\n".join(one.text for one in asked)) as partial,
    ):
        try:
            found = [path for number, one in enumerate(asked) for path in _copied(one, partial, str(number))]
            moves = _moves(found, target, is_folder=to.endswith(os.sep))
            for source, path in moves.items():
                if asked[int(source.partition("/")[0])].named_elsewhere and path != target:
                    _refuse_to_replace(path)
        except UserError:
            beside.remove(partial.path.name)
            raise
        if any(path.parent != folder for path in moves.values()):
            with beside.folder(name, 0o700):
                pass
        for source, path in moves.items():
            _put(beside, f"{partial.path.name}/{source}", path.relative_to(folder).as_posix())
        beside.remove(partial.path.name)
    return list(moves.values())


def _copied(asked: ChosenFiles, partial: Below, part: str) -> list[str]:
    """Copy the chosen files into the folder `part`; their names below `partial`. Raises UserError for none."""
    with partial.folder(part, 0o700) as into:
        asked.copy(into)
        depth = len(asked.pattern.parts)
        found = sorted(name for name, _ in into.entries() if name.count("/") + 1 == depth)
    if not found:
        raise UserError(f"{asked.text}: nothing there can be copied")
    return [f"{part}/{name}" for name in found]


def _moves(found: Sequence[str], target: Path, *, is_folder: bool) -> dict[str, Path]:
    """The new path of each file or folder. Raises UserError if two would have the same, or `target` is a file."""
    is_folder = is_folder or target.is_dir() or len(found) > 1
    if is_folder and os.path.lexists(target) and not target.is_dir():
        raise UserError(f"{target} is not a folder; {counted(len(found), 'file')} need a folder")
    moves: dict[str, Path] = {}
    for source in found:
        path = target / os.path.basename(source) if is_folder else target
        if path in moves.values():
            raise UserError(f"two files would both be {path}: copy one, or give each a folder with `collect --only`")
        moves[source] = path
    return moves


def _refuse_to_replace(path: Path) -> None:
    """Raise UserError if there is a file or folder at a path, other than a checkpoint of ours."""
    if os.path.lexists(path) and step_of(path.name) is None:
        raise UserError(f"{path} exists, and the login node chose this name: give a new name or folder for the copy")


def _put(beside: Below, source: str, target: str) -> None:
    """Move a file or a folder; into a folder that exists, each of its entries. A link to a folder is refused."""
    if not beside.is_folder(source) or beside.status(target) is None:
        return beside.move(source, target)
    with beside.folder(source) as inner, beside.folder(target):
        names = sorted(os.listdir(inner.descriptor))
    for name in names:
        _put(beside, f"{source}/{name}", f"{target}/{name}")
