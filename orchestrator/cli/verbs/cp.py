"""
PATH is a path in the run's folder, in which * and ? stand for a part of one name. A folder is copied with all that is
in it. The `checkpoints.folder` of a command may be named as it is. 'checkpoints/last' is the newest complete
checkpoint, 'checkpoints/best' the one with the highest accuracy.
DEST is a folder, or the new name of one file or folder. Files there are replaced, each by a whole one.

Never copied: files outside of the run's folder, symbolic links, and names with a leading dot: secrets and locks.

examples:
  torusrun cp last:metrics.jsonl .
  torusrun cp last:checkpoints/best 'last:attempts/*/job.out' results/
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import TYPE_CHECKING

from torusrun.orchestrator.base.errors import DONE, UserError

if TYPE_CHECKING:
    from torusrun.orchestrator.run.folder.run_folder import RunFolder
    from torusrun.orchestrator.upkeep.copy_out import ChosenFiles


def arguments(parser: argparse.ArgumentParser) -> None:
    what = "files of a run: its id, the start of its id, its folder or 'last', a colon, and a path or a pattern"
    parser.add_argument("sources", metavar="RUN:PATH", nargs="+", help=what)
    parser.add_argument("dest", metavar="DEST", help="a folder, or the new name of one file or folder")


def run(args: argparse.Namespace) -> int:
    from torusrun.orchestrator.base.terminal.plain import plain
    from torusrun.orchestrator.base.terminal.remarks import busy
    from torusrun.orchestrator.upkeep.copy_out import copy_out

    asked = [_asked(text) for text in args.sources]
    with busy("copying"):
        made = [*copy_out(asked, args.dest)]
    print("\n".join(plain(str(path)) for path in made))
    return DONE


def _in_folder(run: RunFolder, path: str) -> str:
    """A path in the folder of a run. The command's own name of its folder of checkpoints means that folder."""
    from torusrun.orchestrator.run.folder.shown_plan import checkpoints_folder

    own, inner = checkpoints_folder(run), path.removeprefix("./").removeprefix("code/")
    if not own or not f"{inner}/".startswith(f"{own}/") or (run.folder / path).exists():
        return path
    return f"{run.checkpoints.name}{inner.removeprefix(own)}"


def _asked(text: str) -> ChosenFiles:
    """RUN:PATH. Raises UserError if it is none, or if there is no such run."""
    from torusrun.orchestrator.base.terminal.remarks import warn
    from torusrun.orchestrator.remote import remote_runs
    from torusrun.orchestrator.remote.collect import fetch
    from torusrun.orchestrator.run.folder import index, patterns
    from torusrun.orchestrator.run.folder.copying import keep_only
    from torusrun.orchestrator.upkeep.collect import copy_chosen
    from torusrun.orchestrator.upkeep.copy_out import ChosenFiles

    word, _, path = text.partition(":")
    if not word or not path:
        raise UserError(f"{text!r} names no file of a run: write RUN:PATH, as in last:metrics.jsonl")
    pattern = patterns.parse(path, from_top=True)
    if away := remote_runs.find(word):
        copy = partial(fetch, away, checkpoints="none", only=[pattern])
        named_elsewhere = pattern.names_by_word and len(pattern.parts) == 2
        return ChosenFiles(f"{away.run}:{path}", pattern, copy, named_elsewhere)
    run = index.find(word)
    pattern = patterns.parse(_in_folder(run, path), from_top=True)
    return ChosenFiles(
        f"{run.run_id}:{path}", pattern, lambda into: keep_only(into, copy_chosen(run, into, [pattern], warn))
    )
