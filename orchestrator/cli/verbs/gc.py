"""
Removed is only what no run needs:

  image        a built image that was not used for 30 days; `torusrun image build` makes it again
  code         files that were sent to this login node, and not used for 30 days; runs have their own copies
  checkpoints  with --keep-checkpoints N, of runs that are over: all but the newest N and the best
  leftover     what killed builds, writers of checkpoints and fetched copies left, after a day

Nothing of a run that is not over, no image that such a run uses, and none that is being built. It shows all of it, with
sizes, and asks; in a script, --yes is needed.

examples:
  torusrun gc --dry-run
  torusrun gc --older-than 7d --keep-checkpoints 1
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from torusrun.orchestrator.base.errors import DONE, TorusrunError, UserError, explained
from torusrun.orchestrator.base.terminal.remarks import busy
from torusrun.orchestrator.cli.verbs import chosen, shared_arguments
from torusrun.training.counted import counted

if TYPE_CHECKING:
    from torusrun.orchestrator.keys.site import Site
    from torusrun.orchestrator.upkeep.cleaning.garbage import Garbage
    from torusrun.orchestrator.upkeep.garbage import Removal

DAY_S = 86400.0
UNUSED_S, LEFT_S = 30 * DAY_S, DAY_S


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--older-than", metavar="TIME", help="only what was not used for 30d, or since a date: for all four kinds"
    )
    parser.add_argument(
        "--keep-checkpoints",
        metavar="N",
        type=int,
        help="keep the newest N checkpoints and the best one of each run that is over; default: keep all",
    )
    parser.add_argument("--dry-run", action="store_true", help="show what would be removed, and remove nothing")
    parser.add_argument("--yes", "-y", action="store_true", help="remove it without confirmation")
    parser.add_argument("--json", action="store_true", help="as JSON")
    shared_arguments.site(parser)


def run(args: argparse.Namespace) -> int:
    from torusrun.orchestrator.base.shown.numbers import size
    from torusrun.orchestrator.keys.load import load_site
    from torusrun.orchestrator.upkeep.garbage import Removal, listing

    if args.keep_checkpoints is not None and args.keep_checkpoints < 1:
        raise UserError("--keep-checkpoints: must be at least 1; `torusrun rm` removes whole runs")
    site = load_site(args.site)
    now_s = time.time()
    with busy("looking for things that no run needs"):
        found = list(_found(args, site, now_s))
    rows = [Removal(one, now_s - one.used_s) for one in found]
    total = sum(one.size_bytes for one in found)
    if not args.json:
        print("\n".join(listing(rows).lines()) if found else "nothing to remove", flush=True)
    if args.dry_run or not found:
        return _end(rows, as_json=args.json)
    if not chosen.confirmed(f"remove {counted(len(found), 'thing')} and free {size(total)}", yes=args.yes):
        return _end(rows, as_json=args.json)
    with busy("removing it"):
        still = found if args.yes else _found(args, site, now_s)  # somebody may use it since the question
        errors = dict(_removed(still, {one.path for one in found}))
    gone = [Removal(row.what, row.unused_s, row.what.path in errors and not errors[row.what.path]) for row in rows]
    freed = sum(row.what.size_bytes for row in gone if row.removed)
    print(f"freed {size(freed)}", file=sys.stderr if args.json else sys.stdout)
    _end(gone, as_json=args.json)
    return chosen.complained(error for error in errors.values() if error)


def _end(rows: Sequence[Removal], *, as_json: bool) -> int:
    from torusrun.orchestrator.upkeep.garbage import listing

    if as_json:
        print(json.dumps({"schema": 1, "found": listing(rows).as_json()}, indent=1))
    return DONE


def _found(args: argparse.Namespace, site: Site, now_s: float) -> Iterator[Garbage]:
    """What the options say is to be removed, of this machine's runs and of the site."""
    from torusrun.orchestrator.base import private
    from torusrun.orchestrator.cli import sent_here
    from torusrun.orchestrator.images.builds.cache import Cache
    from torusrun.orchestrator.keys.paths import absolute
    from torusrun.orchestrator.run.folder import index
    from torusrun.orchestrator.run.image import building
    from torusrun.orchestrator.run.state import selection
    from torusrun.orchestrator.run.state.poll import views
    from torusrun.orchestrator.upkeep.cleaning import checkpoints, images

    given_s = None if args.older_than is None else selection.moment("--older-than", args.older_than, now_s)
    unused_s = now_s - UNUSED_S if given_s is None else given_s
    left_s = now_s - LEFT_S if given_s is None else given_s
    runs = index.existing(index.runs())
    seen = views(runs, fresh=True)
    uses = images.uses(seen)
    of_site, temporary = building.cache(site), site.container.temporary
    caches = [Cache(folder) for folder in sorted({of_site.folder, *uses.caches}) if private.is_mine(folder)]
    for cache in caches:
        yield from images.unused(cache, uses, unused_s)
        yield from images.leftovers(cache, left_s)
    if temporary:
        yield from images.temporary_leftovers(caches, Path(temporary), left_s)
    if args.keep_checkpoints is not None:
        yield from checkpoints.beyond(seen, args.keep_checkpoints, now_s if given_s is None else given_s)
    yield from checkpoints.leftovers(seen, left_s)
    yield from sent_here.unused_files(unused_s)
    yield from sent_here.copies({absolute(site.runs), *((run.sweep or run.folder).parent for run in runs)}, left_s)


def _removed(found: Iterable[Garbage], agreed: set[Path]) -> Iterator[tuple[Path, TorusrunError | None]]:
    """Remove what was agreed upon; each path, with the error if it stays."""
    for one in found:
        if one.path in agreed:
            try:
                with explained(f"{one.path}: cannot be removed"):
                    one.remove()
                yield one.path, None
            except TorusrunError as error:
                yield one.path, error
