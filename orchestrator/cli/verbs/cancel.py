"""
Several runs need as few commands of the scheduler as one. Runs that were selected by a pattern or an option, and not
named, are shown first.

examples:
  torusrun cancel last
  torusrun cancel digits-20261101-120000-a1b2 digits-20261101-120500-c3d4
  torusrun cancel 'digits*'
  torusrun cancel --state pending --site abci-v --yes
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from torusrun.orchestrator.base.errors import DONE
from torusrun.orchestrator.base.terminal.remarks import progress, result
from torusrun.orchestrator.cli.verbs import chosen

if TYPE_CHECKING:
    from torusrun.orchestrator.remote.remote_runs import Known
    from torusrun.orchestrator.run.state.view import View


def arguments(parser: argparse.ArgumentParser) -> None:
    chosen.arguments(parser, "cancel")


def run(args: argparse.Namespace) -> int:
    from torusrun.orchestrator.remote import remote_runs, verbs
    from torusrun.orchestrator.run.attempts.cancel import cancel_all

    if len(args.run_ids) == 1 and (there := remote_runs.sweep(args.run_ids[0])):
        chosen.check_no_filters(args, "cancel")
        return verbs.run_there(there, "cancel")  # those of its members that are not over
    if args.run_ids and (away := verbs.of_one_host(args.run_ids)):
        return _cancel_there(away, args)
    found = chosen.chosen(args, "cancel", _is_to_cancel, "none of which is waiting or running")
    if not found.named and not chosen.agreed([run.run_id for run in found.runs], "cancel", yes=args.yes):
        return DONE
    refused = cancel_all(found.runs)
    for asked in found.runs:
        if asked not in refused:
            watch = f"`torusrun watch {asked.run_id}` shows when it has ended"
            result(asked.run_id, f"cancellation of {asked.run_id} requested; {watch}")
    return chosen.complained(refused.values())


def _is_to_cancel(view: View) -> bool:
    """Whether the run, which a pattern or a filter selected, is not over, or is LOST and may still be at work."""
    from torusrun.orchestrator.run.attempts.cancel import is_unsure
    from torusrun.orchestrator.run.folder.run_folder import RunFolder

    return not view.state.over or not view.damaged and is_unsure(RunFolder(Path(view.folder)), view)


def _cancel_there(away: Sequence[Known], args: argparse.Namespace) -> int:
    """Cancel runs on a login node; those that a pattern selected are shown first, without those known to be over."""
    from torusrun.orchestrator.remote import verbs
    from torusrun.orchestrator.run.state import selection

    chosen.check_no_filters(args, "cancel")
    selected = any(map(selection.is_pattern, args.run_ids))
    found = [there for there in away if not (selected and there.last and there.last.state.certain)]
    if not found:
        progress("no run to cancel: those on the login node are over")
    if selected and not chosen.agreed([there.run for there in found], "cancel", yes=args.yes):
        return DONE
    return verbs.run_there(found[0], "cancel", [there.run for there in found[1:]])
