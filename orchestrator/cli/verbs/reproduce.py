"""
The new run has the copy of the code of RUN, its image by checksum, its settings, seed and grid, and its site as it was
recorded. With changes of code or settings, submit the run file instead. --compare submits nothing: it compares the
losses and accuracies of all steps that both runs recorded, and the weights of their last common checkpoint by checksum.
A training on CPUs and the same grid has bit-identical results.

examples:
  torusrun reproduce last --wait
  torusrun reproduce RUN
  torusrun reproduce RUN --compare OTHER
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from torusrun.orchestrator.base.errors import DONE
from torusrun.orchestrator.base.process import NoAnswer
from torusrun.orchestrator.base.terminal.remarks import is_quiet, printed
from torusrun.orchestrator.cli.verbs import shared_arguments, watch

if TYPE_CHECKING:
    from torusrun.orchestrator.cli.handle import Run


def arguments(parser: argparse.ArgumentParser) -> None:
    shared_arguments.run_id(parser)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--wait", action="store_true", help="follow the new run to its end, and compare it with RUN")
    what.add_argument("--compare", metavar="RUN", dest="other", help="submit nothing; compare RUN with this run")
    shared_arguments.chosen_elsewhere(parser)
    parser.add_argument("--json", action="store_true", help="as JSON; a submission: the id of the new run")


def run(args: argparse.Namespace) -> int:
    from torusrun.orchestrator.cli.api import open_run

    if args.other is not None:
        return _compare(args, open_run(args.run_id), open_run(args.other))
    original = open_run(args.run_id)
    new = _submitted(original, args)
    printed(new.id)
    if not args.wait:
        return DONE
    code = watch.follow_to_end(new)
    if not is_quiet():
        _compare(args, original, new)
    return code


def _submitted(original: Run, args: argparse.Namespace) -> Run:
    """The new run, on the machine of the original."""
    from torusrun.orchestrator.cli.api import Run, RunThere
    from torusrun.orchestrator.run.attempts.reproduce import plan_again, reproduce

    if isinstance(original, RunThere):
        return original.reproduce()
    planned = plan_again(original.folder, args.id)
    try:
        return Run(reproduce(original.folder, planned))
    except NoAnswer:  # the run stays, and its user needs the id to query it
        printed(planned.run_id)
        raise


def _compare(args: argparse.Namespace, run: Run, other: Run) -> int:
    """Print the comparison of two runs of one machine."""
    from torusrun.orchestrator.base.terminal.plain import plain
    from torusrun.orchestrator.cli.api import RunThere
    from torusrun.orchestrator.show.origin import compare

    if isinstance(run, RunThere):
        from torusrun.orchestrator.cli import elsewhere

        return elsewhere.compare(run.known, other.id)
    comparison = compare(run.folder, other.folder)
    return shared_arguments.show(args, comparison.as_json(), plain(f"{comparison.runs[1]}: {comparison.words}"))
