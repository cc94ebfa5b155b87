"""The runs on which a verb acts: named by its user, or selected by patterns and filters. It asks before it acts."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from torusrun.orchestrator.base.errors import DONE, TorusrunError, UserError
from torusrun.orchestrator.base.terminal.remarks import progress
from torusrun.orchestrator.cli.verbs import shared_arguments
from torusrun.training.counted import counted

if TYPE_CHECKING:
    from torusrun.orchestrator.cli.handle import Run
    from torusrun.orchestrator.run.folder.run_folder import RunFolder
    from torusrun.orchestrator.run.state.view import View

RUNS = f"{shared_arguments.RUN}; a sweep's id, for its members; or a pattern as in 'digits*'"
SHOWN = 20  # runs in a question
YES = ("y", "yes")


class Meant(NamedTuple):
    """The runs that were chosen; `named` says that the user named each of them, so that no question is needed."""

    runs: Sequence[RunFolder]
    named: bool


def arguments(parser: argparse.ArgumentParser, verb: str, *, times: bool = False) -> None:
    """Add the arguments by which a verb that acts on runs chooses them, by `times` of their submission, too."""
    parser.add_argument("run_ids", metavar="RUN", nargs="*", help=RUNS)
    shared_arguments.filters(parser, times=times)
    parser.add_argument("--yes", "-y", action="store_true", help=f"{verb} the selected runs without confirmation")


def chosen(args: argparse.Namespace, verb: str, may: Callable[[View], bool], why_not: str) -> Meant:
    """The local runs that the arguments choose. A filter or a pattern leaves out the runs that it `may` not act on.

    If none is left, this is printed; `why_not` says what the others are. Raises UserError if nothing chooses runs.
    """
    from torusrun.orchestrator.run.folder import index
    from torusrun.orchestrator.run.state import selection
    from torusrun.orchestrator.run.state.poll import views

    filtered = shared_arguments.selection(args)
    if not args.run_ids and filtered == selection.Selection():
        raise UserError("which runs? Name them, or select them, as by --state failed")
    known = index.runs()
    exact = filtered == selection.Selection() and not any(map(selection.is_pattern, args.run_ids))
    if exact:
        words = (run for word in args.run_ids for run in _named(word, known, may, why_not))
        return Meant(list(dict.fromkeys(words)), named=True)
    runs = selection.named(args.run_ids)
    seen = [view for view in views(runs, keep=filtered.asks_about, fresh=True) if filtered.shows(view)]
    left = {view.folder for view in seen if may(view)}
    selected = [run for run in runs if str(run.folder) in left]
    if not selected:
        others = f": {len(seen)} {'matches' if len(seen) == 1 else 'match'}, {why_not}" if seen else ""
        progress(f"no run to {verb}{others}")
    return Meant(selected, named=False)


def _named(word: str, known: Sequence[RunFolder], may: Callable[[View], bool], why_not: str) -> Sequence[RunFolder]:
    """The run that `word` names, or those members of a sweep on which a verb `may` act. Raises UserError for none."""
    from torusrun.orchestrator.run.folder import index
    from torusrun.orchestrator.run.folder.sweep_folder import members_of
    from torusrun.orchestrator.run.state.poll import views

    members = members_of(word, known)
    if not members:
        return [index.find(word, known)]
    left = {view.folder for view in views(members, fresh=True) if may(view)}
    if not left:
        raise UserError(f"{word} has {counted(len(members), 'member')}, {why_not}")
    return [run for run in members if str(run.folder) in left]


def at_work() -> list[RunFolder]:
    """The runs of this machine that are not over."""
    from torusrun.orchestrator.run.state import selection
    from torusrun.orchestrator.run.state.poll import views
    from torusrun.orchestrator.run.state.record import Record

    known, _ = selection.newest(selection.named([]))
    newest = views(known, keep=lambda run: isinstance(run, Record) and not run.settled)
    folders = {view.folder for view in newest if not view.state.over}
    return [run for run in known if str(run.folder) in folders]


def handles(words: Sequence[str]) -> list[Run]:
    """The runs that these words name, on this machine and on login nodes."""
    from torusrun.orchestrator.cli.handle import Run
    from torusrun.orchestrator.cli.handles_there import RunThere
    from torusrun.orchestrator.remote import remote_runs
    from torusrun.orchestrator.run.state import selection

    here, away = remote_runs.split(words)
    return [*map(Run, selection.named(here) if here else []), *map(RunThere, away)]


def agreed_runs(args: argparse.Namespace, verb: str, may: Callable[[View], bool], why_not: str) -> Sequence[RunFolder]:
    """The runs of `chosen`; none if the user, who did not name them, does not agree. Raises as `confirmed` does."""
    meant = chosen(args, verb, may, why_not)
    agrees = meant.named or agreed([run.run_id for run in meant.runs], verb, yes=args.yes)
    return meant.runs if agrees else []


def agreed(names: Sequence[str], does: str, *, yes: bool) -> bool:
    """Whether the user agrees that a verb `does` this, as in 'cancel', to the runs of these ids; False without runs.

    Raises as `confirmed` does.
    """
    more = f", and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return bool(names) and confirmed(f"{does} {counted(len(names), 'run')}: {', '.join(names[:SHOWN])}{more}", yes=yes)


def confirmed(what: str, *, yes: bool) -> bool:
    """Print what the verb will do, as in 'cancel 2 runs', and ask for confirmation, unless `yes`.

    Raises UserError if there is no terminal on which to ask.
    """
    if yes:
        return True
    if sys.stdin is None or not sys.stdin.isatty():
        raise UserError(f"this would {what}; add --yes to confirm it")
    print(f"this will {what}", file=sys.stderr)
    print("continue? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in YES


def refused(act: Callable[[Run], None], runs: Iterable[Run]) -> list[TorusrunError]:
    """Act on each of these runs; the errors of those that refuse it."""
    errors = []
    for run in runs:
        try:
            act(run)
        except TorusrunError as error:
            errors.append(error)
    return errors


def complained(errors: Iterable[TorusrunError]) -> int:
    """Print each of these errors once, after the output; the exit code, DONE without an error."""
    from torusrun.orchestrator.base import private

    once = list({id(error): error for error in errors}.values())
    sys.stdout.flush()
    for error in once:
        print(f"torusrun: {private.plain(str(error))}", file=sys.stderr)
    return max((error.exit_code for error in once), default=DONE)
