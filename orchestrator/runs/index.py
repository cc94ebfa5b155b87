"""Which runs this user has: one symbolic link per run, rebuilt by nothing but submitting, safe to delete."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from orchestrator.errors import UserError
from orchestrator.runs.folder import RunFolder
from orchestrator.spec.problems import did_you_mean


def place() -> Path:
    """The folder of links."""
    state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    return state / "torusrun" / "runs"


def add(run: RunFolder) -> None:
    """Remember a run."""
    place().mkdir(parents=True, exist_ok=True, mode=0o700)
    with contextlib.suppress(FileExistsError):
        (place() / run.run_id).symlink_to(run.folder)


def runs() -> list[RunFolder]:
    """This user's runs, oldest first; a run whose folder is gone is forgotten."""
    if not place().is_dir():
        return []
    alive = [RunFolder(link.resolve()) for link in place().iterdir() if (link / "plan.json").exists()]
    return sorted(alive, key=lambda run: run.plan.stat().st_mtime)


def find(word: str) -> RunFolder:
    """The run that `word` names: an id, its beginning, a folder, or 'last'. Raises UserError for none or many."""
    if "/" in word or (Path(word) / "plan.json").exists():
        folder = Path(word).expanduser().resolve()
        if (folder / "plan.json").exists():
            return RunFolder(folder)
        raise UserError(f"{word}: this is not a run folder (it has no plan.json)")
    known = runs()
    if word == "last" and known:
        return known[-1]
    matching = [run for run in known if run.run_id.startswith(word)]
    exact = [run for run in matching if run.run_id == word]
    if len(matching) == 1 or exact:
        return (exact or matching)[0]
    if matching:
        raise UserError(f"{word!r} begins the ids of {len(matching)} runs: {', '.join(r.run_id for r in matching)}")
    hint = did_you_mean(word, [run.run_id for run in known])
    raise UserError(f"there is no run {word!r}{hint}; `torusrun status` lists your runs")
