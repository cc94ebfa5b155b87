"""
It asks for the nodes of RUN.yaml, proves that ranks start there, and keeps the nodes. `submit --in` and
`resume --in` then start attempts without the queue, one at a time; `cancel` gives the allocation back.

examples:
  torusrun hold examples/digits.yaml --time 2h --wait
  torusrun submit examples/digits.yaml --in last --wait
  torusrun hold run.yaml --time 4h --idle 30m --name lunch
"""

from __future__ import annotations

import argparse

from torusrun.orchestrator.base.errors import DONE, RUN_FAILED
from torusrun.orchestrator.base.terminal.remarks import printed, say, warn
from torusrun.orchestrator.cli.verbs import shared_arguments


def arguments(parser: argparse.ArgumentParser) -> None:
    shared_arguments.run_file(parser)
    parser.add_argument("--time", metavar="DURATION", help="how long to hold it, as in 2h; default: the file's `time`")
    idle = "give it back after this long without a running attempt; default: %(default)s"
    parser.add_argument("--idle", metavar="DURATION", default="20m", help=idle)
    parser.add_argument("--name", metavar="NAME", help="beginning of its id; default: held- and the run's name")
    parser.add_argument("--wait", action="store_true", help="wait until it is held")
    shared_arguments.chosen_elsewhere(parser)


def run(args: argparse.Namespace) -> int:
    from torusrun.orchestrator.cli.api import hold

    from_elsewhere = {"run_id": args.id, "origin": shared_arguments.origin(args)}
    how = {"time": args.time, "idle": args.idle, "name": args.name, **from_elsewhere}
    held = hold(args.file, site=args.site, settings=args.settings, **how)
    printed(held.id)
    if not args.wait:
        return DONE
    view = held.wait_until_held()
    (warn if view.state.over else say)(view.reason)
    return RUN_FAILED if view.state.over else DONE
