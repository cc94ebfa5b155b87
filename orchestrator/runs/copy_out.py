"""Copies single files and folders out of runs: `torusrun cp RUN:PATH TO`. Each appears whole, or not at all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.folder.patterns import Pattern
from torusrun.orchestrator.runs.collect import not_copied, partial_copy
from torusrun.orchestrator.spec.paths import absolute
from torusrun.training.counted import counted


@dataclass(frozen=True)
class ChosenFiles:
    """Files of a run that are to be copied: the words of the user, the pattern that chooses them below the folder of
    the run, and the function that copies them into a folder, with their paths in the run. It continues a copy.
    """

    text: str
    pattern: Pattern
    copy: Callable[[Path], None]


def copy_out(asked: Sequence[ChosenFiles], to: str) -> list[Path]:
    """Copy the chosen files into the folder `to`, or one file or folder under this new name; the new paths.

    A file that exists is replaced. Raises UserError if two files would get the same name, SiteError if the copy fails:
    the same call then continues.
    """
    target = absolute(to)
    beside = target / "new" if target.is_dir() else target
    with not_copied(f"{target}: not copied"), partial_copy(beside, "\n".join(one.text for one in asked)) as partial:
        try:
            found = [path for number, one in enumerate(asked) for path in _copied(one, partial / str(number))]
            moves = _moves(found, target, is_folder=to.endswith(os.sep))
        except UserError:
            shutil.rmtree(partial)
            raise
        for source, path in moves.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            _put(source, path)
        shutil.rmtree(partial)
    return list(moves.values())


def _copied(asked: ChosenFiles, part: Path) -> list[Path]:
    """Copy the chosen files into the folder `part`; their paths there. Raises UserError for none."""
    part.mkdir(mode=0o700, exist_ok=True)
    asked.copy(part)
    found = sorted(part.glob("/".join("*" for _ in asked.pattern.parts)))
    if not found:
        raise UserError(f"{asked.text}: nothing there can be copied")
    return found


def _moves(found: Sequence[Path], target: Path, *, is_folder: bool) -> dict[Path, Path]:
    """The new path of each file or folder. Raises UserError if two would have the same, or `target` is a file."""
    is_folder = is_folder or target.is_dir() or len(found) > 1
    if is_folder and os.path.lexists(target) and not target.is_dir():
        raise UserError(f"{target} is not a folder; {counted(len(found), 'file')} need a folder")
    moves: dict[Path, Path] = {}
    for source in found:
        path = target / source.name if is_folder else target
        if path in moves.values():
            raise UserError(f"two files would both be {path}: copy one, or give each a folder with `collect --only`")
        moves[source] = path
    return moves


def _put(source: Path, target: Path) -> None:
    """Move a file or a folder; into a folder that exists, each of its entries."""
    if source.is_dir() and target.is_dir():
        for entry in sorted(source.iterdir()):
            _put(entry, target / entry.name)
    else:
        source.replace(target)
