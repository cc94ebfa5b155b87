"""
Removed is only what no run needs:

  image     a built image that was not used for 30 days; `torusrun image build` makes it again
  leftover  what killed builds, writers of checkpoints and fetched copies left, after a day

Nothing of a run that is not over, no image that such a run uses, and none that is being built. It shows all of it, with
sizes, and asks; in a script, --yes is needed.

examples:
  torusrun gc --dry-run
  torusrun gc --older-than 7d
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from torusrun.orchestrator.base.errors import DONE, SiteError, TorusrunError, explained
from torusrun.orchestrator.base.terminal.remarks import busy
from torusrun.orchestrator.cli.verbs import chosen, shared_arguments
from torusrun.training.counted import counted

if TYPE_CHECKING:
    from torusrun.orchestrator.keys.site import Site
    from torusrun.orchestrator.upkeep.garbage import Garbage

DAY_S = 86400.0
UNUSED_S, LEFT_S = 30 * DAY_S, DAY_S


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--older-than", metavar="TIME", help="only what was not used for 30d, or since a date: for both kinds"
    )
    parser.add_argument("--dry-run", action="store_true", help="show what would be removed, and remove nothing")
    parser.add_argument("--yes", "-y", action="store_true", help="remove it without confirmation")
    parser.add_argument("--json", action="store_true", help="as JSON")
    shared_arguments.site(parser)


def run(args: argparse.Namespace) -> int:
    from torusrun.orchestrator.base.shown.numbers import size
    from torusrun.orchestrator.keys.load import load_site
    from torusrun.orchestrator.upkeep.garbage import listing

    site = load_site(args.site)
    now_s = time.time()
    with busy("looking for things that no run needs"):
        things = list(_things(args, site, now_s))
    total = sum(thing.size_bytes for thing in things)
    if not args.json:
        print("\n".join(listing(things, now_s).lines()) if things else "nothing to remove", flush=True)
    question = f"remove {counted(len(things), 'thing')} and free {size(total)}"
    if args.dry_run or not things or not chosen.confirmed(question, yes=args.yes):
        _end(args, things, now_s)
        return DONE
    with busy("removing it"):
        still = things if args.yes else _things(args, site, now_s)  # somebody may use it since the question
        errors = dict(_removed(still, {thing.path for thing in things}))
    things = [replace(thing, removed=thing.path in errors and not errors[thing.path]) for thing in things]
    freed = sum(thing.size_bytes for thing in things if thing.removed)
    print(f"freed {size(freed)}", file=sys.stderr if args.json else sys.stdout)
    _end(args, things, now_s)
    return chosen.complained(error for error in errors.values() if error)


def _end(args: argparse.Namespace, things: list[Garbage], now_s: float) -> None:
    from torusrun.orchestrator.upkeep.garbage import listing

    if args.json:
        shared_arguments.show(args, {"found": listing(things, now_s).as_json()}, "")


def _things(args: argparse.Namespace, site: Site, now_s: float) -> Iterator[Garbage]:
    """What the options say is to be removed, of this machine's runs and of the site."""
    from torusrun.orchestrator.base import private
    from torusrun.orchestrator.images.builds.cache import Cache
    from torusrun.orchestrator.keys.paths import absolute
    from torusrun.orchestrator.run.folder import index
    from torusrun.orchestrator.run.image import building
    from torusrun.orchestrator.run.state import selection
    from torusrun.orchestrator.run.state.poll import views
    from torusrun.orchestrator.upkeep import garbage

    given_s = None if args.older_than is None else selection.moment("--older-than", args.older_than, now_s)
    unused_s = now_s - UNUSED_S if given_s is None else given_s
    left_s = now_s - LEFT_S if given_s is None else given_s
    runs = index.existing(index.runs())
    seen = views(runs, fresh=True)
    uses = garbage.uses(seen)
    of_site, temporary = building.cache(site), site.container.temporary
    caches = [Cache(folder) for folder in sorted({of_site.folder, *uses.caches}) if private.is_mine(folder)]
    for cache in caches:
        yield from garbage.images(cache, uses, unused_s)
        yield from garbage.of_builds(cache, left_s)
    if temporary:
        yield from garbage.of_temporary_builds(caches, Path(temporary), left_s)
    yield from garbage.of_checkpoints(seen, left_s)
    yield from _copies({absolute(site.runs), *((run.sweep or run.folder).parent for run in runs)}, left_s)


def _removed(things: Iterable[Garbage], agreed: set[Path]) -> Iterator[tuple[Path, TorusrunError | None]]:
    """Remove what was agreed upon; each path, with the error if it stays."""
    for thing in things:
        if thing.path in agreed:
            try:
                with explained(f"{thing.path}: cannot be removed"):
                    thing.remove()
                yield thing.path, None
            except TorusrunError as error:
                yield thing.path, error


def _copies(folders: Collection[Path], before_s: float) -> Iterator[Garbage]:
    """Copies of runs in these folders that nobody fetches, and files of broken requests, unchanged since `before_s`."""
    from torusrun.orchestrator.base import private
    from torusrun.orchestrator.remote import store
    from torusrun.orchestrator.upkeep import disk
    from torusrun.orchestrator.upkeep.collect import PARTIAL
    from torusrun.orchestrator.upkeep.garbage import Garbage

    named = [path for folder in folders for name in (store.STAGED, PARTIAL) for path in sorted(folder.glob(f"{name}*"))]
    sent = sorted(store.place().glob(f"{store.SENT}*"))
    whys = dict.fromkeys(named, "a copy that nobody fetches") | dict.fromkeys(sent, "files of a request that has ended")
    for path, why in whys.items():
        changed_s = disk.changed_s(path)  # a large copy that is being made changes deep inside
        if changed_s < before_s and private.is_mine(path):
            remove = partial(_remove_copy, path, before_s)
            yield Garbage("leftover", path, disk.of_path(path), changed_s, why, remove)


def _remove_copy(path: Path, before_s: float) -> None:
    from torusrun.orchestrator.upkeep import disk
    from torusrun.orchestrator.upkeep.garbage import remove

    if disk.changed_s(path) >= before_s:
        raise SiteError(f"{path}: it is being fetched")
    remove(path)
