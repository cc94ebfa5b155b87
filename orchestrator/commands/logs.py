"""
examples:
  torusrun logs last
  torusrun logs last --rank 3 --follow
  torusrun logs last --all --grep 'loss|warning'
  torusrun logs last --errors
"""

from __future__ import annotations

import argparse
import re
import sys
from typing import TYPE_CHECKING

from orchestrator.commands import asked
from orchestrator.errors import DONE, UserError

if TYPE_CHECKING:
    from orchestrator.watch.logs import Logs


def arguments(parser: argparse.ArgumentParser) -> None:
    asked.run_id(parser)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--rank", metavar="N", type=int, default=0, help="the output of this rank; default: %(default)s")
    what.add_argument("--all", action="store_true", help="the job and all ranks, each line with its origin")
    what.add_argument("--errors", action="store_true", help="tracebacks of all ranks, and the ranks that ended badly")
    parser.add_argument("--attempt", metavar="N", type=int, help="an earlier attempt; default: the newest")
    parser.add_argument("--grep", metavar="PATTERN", help="only lines that match this regular expression")
    parser.add_argument("--follow", "-f", action="store_true", help="go on until the run is over")


def run(args: argparse.Namespace) -> int:
    from orchestrator.runs.index import find
    from orchestrator.watch.logs import logs

    if args.errors and args.follow:
        raise UserError("--errors looks at what is written by now: leave out --follow, or use --all --follow")
    pattern = _compiled(args.grep)
    chosen = logs(find(args.run_id), args.attempt)
    if args.errors:
        _show_errors(chosen, pattern)
    else:
        _show(chosen, None if args.all else args.rank, pattern, follow=args.follow)
    return DONE


def _compiled(pattern: str | None) -> re.Pattern[str] | None:
    try:
        return None if pattern is None else re.compile(pattern)
    except re.error as error:
        raise UserError(f"--grep {pattern!r}: this is no regular expression: {error}") from None


def _show(chosen: Logs, rank: int | None, pattern: re.Pattern[str] | None, *, follow: bool) -> None:
    """Print the lines, or why there are none."""
    lines = chosen.lines(rank, until_over=follow, pattern=pattern)
    if follow and rank is not None and not chosen.wrote(rank) and not chosen.status().state.over:
        _say(chosen.silence(rank)[0])
    shown = False
    for line in lines:
        shown = True
        print(line, flush=follow)
    if shown:
        return
    if rank is None or chosen.wrote(rank):
        _say("no line matches" if pattern else "nothing was written")
        return
    why, end = chosen.silence(rank)
    _say(why)
    for line in end:
        print(line)


def _show_errors(chosen: Logs, pattern: re.Pattern[str] | None) -> None:
    from orchestrator.watch.failures import failures

    shown = False
    for line in failures(chosen):
        if pattern is None or pattern.search(line):
            shown = True
            print(line)
    if shown:
        return
    why, end = chosen.failure()
    _say("no line matches" if pattern else f"no traceback, and no rank that ended badly{f'; {why}' if why else ''}")
    for line in end if not pattern else []:
        print(line)


def _say(what: str) -> None:
    """Tell what is no line of a log where it does not mix with them."""
    sys.stdout.flush()
    print(f"torusrun: {what}", file=sys.stderr)
