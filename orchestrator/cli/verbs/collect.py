"""
Checkpoints are verified against their manifests before and after copying; incomplete ones are not copied. Symbolic
links, FIFOs and devices are not copied either; each is reported. Several runs get a folder each, within FOLDER.

FOLDER appears when it is complete. If the copying was interrupted, the same command continues: files that are there
with the same content are not copied again.

With --only, FOLDER may exist: the files and folders are copied into it by their own names, each whole, and replace
those of the same name. In a new FOLDER they keep their paths.

--only takes patterns between commas. A pattern with a slash is a path in the run's folder, one without is a name at
any depth, and a folder stands for all in it. 'checkpoints/last' is the newest complete checkpoint.

examples:
  torusrun collect last results/digits
  torusrun collect 'digits*' results --checkpoints none
  torusrun collect last . --only metrics.jsonl
  torusrun collect last results/last --only 'checkpoints/last,metrics.jsonl,*.csv'
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from torusrun.orchestrator.base.errors import DONE, UserError
from torusrun.orchestrator.cli.verbs import chosen

if TYPE_CHECKING:
    from torusrun.orchestrator.remote.remote_runs import Known
    from torusrun.orchestrator.run.folder.patterns import Pattern
    from torusrun.orchestrator.run.folder.run_folder import RunFolder
    from torusrun.orchestrator.upkeep.copy_out import ChosenFiles


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_ids", metavar="RUN", nargs="+", help=chosen.RUNS)
    parser.add_argument("into", metavar="FOLDER", help="the folder to create, or with --only one that exists")
    parser.add_argument(
        "--checkpoints",
        choices=("newest", "all", "none"),
        help="which checkpoints to copy; default: newest",
    )
    parser.add_argument("--only", metavar="PATTERNS", help="copy only these files, as in 'checkpoints/last,*.csv'")


def run(args: argparse.Namespace) -> int:
    from torusrun.orchestrator.base.terminal.plain import plain
    from torusrun.orchestrator.base.terminal.remarks import busy, warn
    from torusrun.orchestrator.cli.handles_there import collect as collect_there
    from torusrun.orchestrator.remote import remote_runs
    from torusrun.orchestrator.run.folder import patterns
    from torusrun.orchestrator.run.state import selection
    from torusrun.orchestrator.upkeep.collect import collect
    from torusrun.orchestrator.upkeep.copy_out import copy_out

    if args.only is not None and args.checkpoints:
        raise UserError("--only chooses checkpoints, too, as in 'checkpoints/last': leave out --checkpoints")
    only = () if args.only is None else (patterns.parse_list(args.only) or (patterns.parse(""),))
    checkpoints = args.checkpoints or "newest"
    words, away = remote_runs.split(args.run_ids)
    runs, folder = selection.named(words) if words else [], Path(args.into)
    if len(args.run_ids) == 1 and len(runs) + len(away) < 2 and not selection.is_pattern(args.run_ids[0]):
        if only and folder.is_dir():
            with busy(f"copying into {folder}"):
                made = copy_out(_chosen(runs[0] if runs else None, away, only), folder)
            print("\n".join(plain(str(path)) for path in made))
            return DONE
        with busy(f"copying into {folder}"):
            copied = (
                collect_there(away[0], folder, checkpoints, only)
                if away
                else collect(runs[0], folder, checkpoints, warn, only)
            )
        print(copied)
        return DONE

    def here(run: RunFolder) -> None:
        print(collect(run, folder / run.run_id, checkpoints, warn, only), flush=True)

    def there(run: Known) -> None:
        print(collect_there(run, folder / run.run, checkpoints, only), flush=True)

    return chosen.complained([*chosen.refused(here, runs), *chosen.refused(there, away)])


def _chosen(run: RunFolder | None, away: Sequence[Known], only: Sequence[Pattern]) -> list[ChosenFiles]:
    """The files of one run, here or on a login node, that these patterns choose."""
    from torusrun.orchestrator.base.terminal.remarks import warn
    from torusrun.orchestrator.remote.fetch import fetch
    from torusrun.orchestrator.run.folder.copying import keep_only
    from torusrun.orchestrator.run.state import selection
    from torusrun.orchestrator.upkeep.collect import copy_chosen
    from torusrun.orchestrator.upkeep.copy_out import ChosenFiles

    def of(pattern: Pattern) -> ChosenFiles:
        if run is None:
            copy = partial(fetch, away[0], checkpoints="none", only=[pattern])
            by_login_node = pattern.names_by_word or bool(selection.PATTERN.search(pattern.parts[-1]))
            return ChosenFiles(f"{away[0].run}:{pattern.text}", pattern, copy, by_login_node)
        return ChosenFiles(
            f"{run.run_id}:{pattern.text}",
            pattern,
            lambda into: keep_only(into, copy_chosen(run, into, [pattern], warn)),
        )

    return [of(pattern) for pattern in only]
