"""
The cause is one of a closed list, as in `torusrun status --json`. The ranks that
failed are in the order of their ends, by the clocks of their hosts. The error is
the last traceback of the rank that failed first, or its last lines.

examples:
  torusrun explain last
  torusrun explain last --attempt 1
  torusrun explain last --json
"""

from __future__ import annotations

import argparse

from torusrun.orchestrator.cli.verbs import shared_arguments


def arguments(parser: argparse.ArgumentParser) -> None:
    shared_arguments.run_id(parser)
    parser.add_argument("--attempt", metavar="N", type=int, help="an earlier one; default: the newest")


def run(args: argparse.Namespace) -> int:
    from torusrun.orchestrator.run.folder.index import find
    from torusrun.orchestrator.show.explanation import explained
    from torusrun.orchestrator.show.logs.files import logs

    explanation = explained(logs(find(args.run_id), args.attempt))
    return shared_arguments.show(args, explanation.as_json(), "\n".join(explanation.lines()))
