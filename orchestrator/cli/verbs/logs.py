"""
--all merges the lines of the job and of all ranks by time. The wrapper of a rank
looks at the size of its log five times a second and keeps the times beside it,
by the clock of the rank's host. So lines that were written within 0.2 s, or on
hosts whose clocks differ, may change places. A log whose times are missing comes
first. With several attempts, '#2' before a line is the number of its attempt.

Control characters of a program, colours among them, are printed as \\x1b and the
like, because a pipe may lead to a terminal. They stay in a file (torusrun logs
last > FILE) and with --raw, but never those of another user's run.

examples:
  torusrun logs last
  torusrun logs last -n 50
  torusrun logs last --rank 3 --follow
  torusrun logs last --role rollout
  torusrun logs last --all --grep 'loss|warning'
  torusrun logs last --all --attempt all --since 10m --times
  torusrun logs last --errors
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from torusrun.orchestrator.base.errors import DONE, UserError
from torusrun.orchestrator.base.terminal.remarks import say
from torusrun.orchestrator.cli.verbs import shared_arguments

if TYPE_CHECKING:
    from torusrun.orchestrator.show.logs.files import LogLine
    from torusrun.orchestrator.show.logs.reading import Reading

ALL = 0
NO_TIME = "-" * len("2026-11-01T14:30:00")


def arguments(parser: argparse.ArgumentParser) -> None:
    shared_arguments.run_id(parser)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--rank", metavar="N", type=int, default=0, help="the output of this rank; default: %(default)s")
    what.add_argument("--all", action="store_true", help="the job and all ranks by time, each line with its origin")
    what.add_argument(
        "--errors", action="store_true", help="the last error of each rank, and the ranks that ended badly"
    )
    shared_arguments.role(parser)
    parser.add_argument("--attempt", metavar="N", type=_attempt, help="an earlier one, or 'all'; default: the newest")
    parser.add_argument(
        "--tail", "-n", metavar="N", type=_lines, help="only the last N lines that exist already, read from the end"
    )
    parser.add_argument("--grep", metavar="PATTERN", help="only lines that match this regular expression")
    since = "only lines written since: 10m or 2h ago, 2026-11-01, or 2026-11-01T14:30; and those without a time"
    parser.add_argument("--since", metavar="TIME", help=since)
    parser.add_argument(
        "--times", action="store_true", help="print the time before each line, in this machine's zone; dashes: unknown"
    )
    raw = "print control characters unchanged, or as \\x1b; default: unchanged only in a regular file"
    parser.add_argument("--raw", action=argparse.BooleanOptionalAction, help=raw)
    parser.add_argument("--follow", "-f", action="store_true", help="follow the output until the run is over")


def _attempt(text: str) -> int:
    """The number of an attempt, or ALL for 'all'."""
    if text == "all":
        return ALL
    if not text.isdecimal() or int(text) == ALL:
        raise argparse.ArgumentTypeError(f"{text!r} is neither the number of an attempt nor 'all'")
    return int(text)


def _lines(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of lines")
    return int(text)


def run(args: argparse.Namespace) -> int:
    from torusrun.orchestrator.base.terminal import output
    from torusrun.orchestrator.run.folder.index import find
    from torusrun.orchestrator.run.state import selection
    from torusrun.orchestrator.show.logs.reading import Filter, Reading

    if args.errors and args.follow:
        raise UserError("--errors shows what was written until now: leave out --follow")
    args.raw = output.is_file(sys.stdout) if args.raw is None else args.raw
    rank = None if args.all or args.errors else args.rank
    since_s = None if args.since is None else selection.moment("--since", args.since)
    chosen = Filter(rank, args.attempt, since_s, _compiled(args.grep), args.tail, args.role)
    reading = Reading(find(args.run_id), chosen)
    first = reading.newest.rank(rank, args.role)
    if args.follow and first is not None and not reading.newest.wrote(first):
        _say_why_it_waits(reading, first)
    lines = reading.failures() if args.errors else reading.lines(until_over=args.follow)
    untimed = _print(lines, times=args.times, raw=args.raw, flush=args.follow)
    if untimed is None:
        _say_why_there_are_none(reading, args)
    elif untimed and since_s is not None and not args.errors:
        _say(f"lines above without a time, which may be older: {untimed}")
    return DONE


def _compiled(pattern: str | None) -> re.Pattern[str] | None:
    try:
        return None if pattern is None else re.compile(pattern)
    except re.error as error:
        raise UserError(f"--grep {pattern!r}: this is not a regular expression: {error}") from None


def _print(lines: Iterable[LogLine], *, times: bool, raw: bool, flush: bool) -> int | None:
    """Print the lines; returns the number of lines without a time, or None if there are no lines."""
    from torusrun.orchestrator.base.terminal.plain import harmless

    untimed = None
    for line in lines:
        untimed = (untimed or 0) + (line.time_s is None)
        text = str(line) if raw else harmless(str(line))
        print(f"{_time(line)} {text}" if times else text, flush=flush)
    return untimed


def _time(line: LogLine) -> str:
    try:
        return time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(line.time_s)) if line.time_s is not None else NO_TIME
    except (OverflowError, ValueError, OSError):  # a damaged index
        return NO_TIME


def _say_why_it_waits(reading: Reading, rank: int) -> None:
    if not reading.newest.status().state.over:
        _say(reading.newest.silence(rank)[0])


def _say_why_there_are_none(reading: Reading, args: argparse.Namespace) -> None:
    """Say why no line was printed, with the end of the job's output if that explains a failure."""
    from torusrun.orchestrator.show.logs.files import LogLine

    chosen = reading.filter.pattern or reading.filter.since_s is not None
    rank = reading.newest.rank(reading.filter.rank, args.role)
    if args.errors:
        why, end = reading.newest.failure()
        none = f"no error, and no rank that ended badly{f'; {why}' if why else ''}"
        why, end = ("no line matches", []) if chosen else (none, end)
    elif rank is None or reading.newest.wrote(rank):
        why, end = "no line matches" if chosen else "nothing was written", []
    else:
        why, end = reading.newest.silence(rank)
    _say(why)
    _print((LogLine(None, "", line) for line in end), times=False, raw=args.raw, flush=False)


def _say(what: str) -> None:
    """Print a remark on standard error, apart from the lines of the log."""
    sys.stdout.flush()
    say(what)
