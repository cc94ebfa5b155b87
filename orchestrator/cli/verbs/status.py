"""
AGE of a run that is not over is the time since its newest attempt was submitted.
ETA is the time to the last step, at the pace of the attempt's newest steps.
A narrow terminal leaves out LOSS/ACC, SITE, AGE, ETA and STEP, in this order.
Pipes and --json get every column, and --json every run.
A sweep is one line; `torusrun status SWEEP` shows its members: the settings in
which they differ, their states, and the newest value of each of their metrics.

examples:
  torusrun status
  torusrun status 'digits*' --state running,pending
  torusrun status --site abci-v --since 2h
  torusrun status last --long
  torusrun status last --json
  torusrun status SWEEP --best accuracy
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torusrun.orchestrator.base.errors import DONE, SiteError, UserError
from torusrun.orchestrator.cli.verbs import shared_arguments
from torusrun.training.counted import counted

if TYPE_CHECKING:
    from torusrun.orchestrator.remote.remote_runs import Known
    from torusrun.orchestrator.run.folder.run_folder import RunFolder
    from torusrun.orchestrator.run.state.account import Account
    from torusrun.orchestrator.run.state.view import View


def arguments(parser: argparse.ArgumentParser) -> None:
    runs = "runs, or patterns as in 'digits*'; default: those that are not over, and the newest 20 others"
    parser.add_argument("run_ids", metavar="RUN", nargs="*", help=runs)
    shared_arguments.filters(parser)
    parser.add_argument("--all", "-a", action="store_true", help="all runs, newest last")
    more = "more about each run: job, grid, folder, estimated start; for a named RUN also its attempts and times"
    parser.add_argument("--long", "-l", action="store_true", help=more)
    best = "sort the members of a sweep by this metric, the best first: accuracy, loss, max:NAME or min:NAME"
    parser.add_argument("--best", metavar="METRIC", help=best)
    parser.add_argument("--json", action="store_true", help="as JSON, with every known value")
    # for another machine, whose runs may be gone here
    parser.add_argument("--if-there", action="store_true", help=argparse.SUPPRESS)


def run(args: argparse.Namespace) -> int:
    from torusrun.orchestrator.remote import remote_runs as remote
    from torusrun.orchestrator.run.folder import index
    from torusrun.orchestrator.run.state import selection
    from torusrun.orchestrator.run.state.poll import PATIENCE_S, views

    chosen = shared_arguments.selection(args, {run.site for run in remote.runs()})
    is_plain = chosen == selection.Selection() and not (args.long or args.if_there)
    if len(args.run_ids) == 1 and is_plain and (code := _of_sweep(args)) is not None:
        return code
    if args.best:
        raise UserError("--best sorts the members of one sweep: name it, without --long or a choice of runs")
    words, away = ([], []) if args.if_there else remote.split(args.run_ids)
    known = _existing(args.run_ids) if args.if_there else selection.named(words) if words or not args.run_ids else []
    far_accounts, far_starts = dict[str, Any](), dict[str, float]()
    all_asked = args.all or args.json or args.run_ids or chosen != selection.Selection()
    newest = (known if words else index.existing(known), 0) if all_asked else selection.newest(known)
    runs, hidden = newest
    rows = [view for view in views(runs, keep=chosen.asks_about, patience_s=PATIENCE_S) if chosen.shows(view)]
    if away:
        from torusrun.orchestrator.base.terminal.remarks import warn
        from torusrun.orchestrator.remote import status

        shown_away = away if all_asked else remote.newest(away, selection.SHOWN_OVER)
        asked = [run for run in shown_away if chosen.asks_about(run)]
        far = status.rows(asked, named=bool(args.run_ids), long=args.long, say=warn)
        rows += [view for view in far.views if chosen.shows(view)]
        far_accounts, far_starts = far.accounts, far.starts
        hidden += len(away) - len(shown_away)
        rows.sort(key=lambda view: view.submitted_s or 0.0)
    if not all_asked:
        shown = selection.newest_views(rows)
        rows, hidden = shown, hidden + len(rows) - len(shown)
    accounts = _accounts(rows, far_accounts) if args.long and args.run_ids else {}
    starts = {**_starts(rows, away), **far_starts} if args.long else {}
    if args.json:
        print(json.dumps({"schema": 1, "runs": [_as_json(view, accounts, starts) for view in rows]}, indent=1))
    elif rows:
        from torusrun.orchestrator.base.terminal import output
        from torusrun.orchestrator.show.listing import by_sweep, listing

        width = output.width(sys.stdout)
        if not args.run_ids and not chosen.states:
            rows = by_sweep(rows)
        print("\n".join(listing(rows, long=args.long, accounts=accounts, starts=starts, width=width).lines(width)))
    else:
        print("no run matches" if runs or away else "no runs yet; `torusrun submit RUN.yaml` makes one")
    if hidden:
        from torusrun.orchestrator.base.terminal.remarks import progress

        sys.stdout.flush()
        runs_over = f"{counted(hidden, 'more run')} {'is' if hidden == 1 else 'are'} over and not shown"
        progress(f"{runs_over}: --all shows all, --since 2d those of two days, a pattern those of a name")
    return DONE


def _existing(names: Sequence[str]) -> list[RunFolder]:
    """Those of the runs with these ids that exist."""
    from torusrun.orchestrator.run.folder import index

    return index.existing([run for run in index.runs() if run.run_id in {*names}])


def _of_sweep(args: argparse.Namespace) -> int | None:
    """Print the members of the sweep that the only word names; None if it names no sweep."""
    from torusrun.orchestrator.base.terminal import output
    from torusrun.orchestrator.base.terminal.remarks import busy
    from torusrun.orchestrator.run.folder import index
    from torusrun.orchestrator.run.folder.sweep_folder import SweepFolder, members_of

    (word,) = args.run_ids
    if not (members := members_of(word, index.runs())):
        return None
    from torusrun.orchestrator.sweeps import table

    sweep = SweepFolder(members[0].folder.parent)
    with busy("reading the members"):
        if args.json:
            text = json.dumps(table.shown_as_json(sweep, members, args.best or ""), indent=1)
        else:
            text = "\n".join(table.shown(sweep, members, args.best or "", output.width(sys.stdout)))
    print(text)
    return DONE


def _accounts(views: Sequence[View], far: Mapping[str, Account]) -> dict[str, Account]:
    """The accounts of these runs by their ids, without those that cannot be read; `far` are those of login nodes."""
    from torusrun.orchestrator.run.folder.run_folder import RunFolder
    from torusrun.orchestrator.run.state.account import read_account

    accounts = dict(far)
    for view in views:
        with contextlib.suppress(SiteError):
            if view.run not in accounts and view.folder.startswith("/"):
                accounts[view.run] = read_account(RunFolder(Path(view.folder)), view.state)
    return accounts


def _starts(views: Sequence[View], away: Sequence[Known]) -> Mapping[str, float]:
    """When the waiting ones of these runs begin (of time.time()), without those on login nodes."""
    import time

    from torusrun.orchestrator.run.state.poll import PATIENCE_S, starts

    far = {run.run for run in away}
    return starts([view for view in views if view.run not in far], time.monotonic() + PATIENCE_S)


def _as_json(view: View, accounts: Mapping[str, Account], starts: Mapping[str, float]) -> dict[str, Any]:
    account = {"account": accounts[view.run].as_json()} if view.run in accounts else {}
    start = {"starts_s": starts[view.run]} if view.run in starts else {}
    return {**view.as_json(), **account, **start}
