"""
Several runs need as few commands of the scheduler as one.

examples:
  torusrun cancel last
  torusrun cancel digits-20261101-120000-a1b2 digits-20261101-120500-c3d4
"""

from __future__ import annotations

import argparse
import sys

from orchestrator.base.errors import DONE
from orchestrator.cli.verbs.shared_arguments import RUN


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_ids", metavar="RUN", nargs="+", help=RUN)


def run(args: argparse.Namespace) -> int:
    from orchestrator.base import private
    from orchestrator.remote import verbs
    from orchestrator.runs.attempts.cancel import cancel_all
    from orchestrator.runs.folder import index

    if away := verbs.of_one_host(args.run_ids):
        return verbs.run_there(away[0], "cancel", [there.run for there in away[1:]])
    known = index.runs()
    runs = list(dict.fromkeys(index.find(word, known) for word in args.run_ids))
    refused = cancel_all(runs)
    for asked in runs:
        if asked not in refused:
            print(f"cancellation of {asked.run_id} requested; `torusrun watch {asked.run_id}` shows when it has ended")
    sys.stdout.flush()
    for error in {id(error): error for error in refused.values()}.values():
        print(f"torusrun: {private.plain(str(error))}", file=sys.stderr)
    return max((error.exit_code for error in refused.values()), default=DONE)
