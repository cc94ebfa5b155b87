"""
The shell runs on the rank's host, in its image, with its variables. It needs no ssh, since the scheduler connects it.
For a held allocation (`torusrun hold`) it runs on the first host. Its exit code is the command's.

examples:
  torusrun shell last
  torusrun shell last --rank 3
  torusrun shell last --role rollout
  torusrun shell last -- nvidia-smi
  torusrun shell last --proxy >> ~/.ssh/config    # then: ssh torusrun, or VS Code

On a terminal, --proxy prints the lines for ~/.ssh/config with which ssh opens the
node, by an sshd of your own there. It is outside of the image.
"""

from __future__ import annotations

import argparse
import sys

from torusrun.orchestrator.base.errors import DONE, UserError
from torusrun.orchestrator.cli.verbs import shared_arguments

TAKES_A_COMMAND = True


def arguments(parser: argparse.ArgumentParser) -> None:
    shared_arguments.run_id(parser)
    shared_arguments.rank(parser)
    parser.add_argument("--proxy", action="store_true", help="be the ProxyCommand of ssh, for editors such as VS Code")
    parser.add_argument("--admit", metavar="KEY", help=argparse.SUPPRESS)  # by the client of another machine
    parser.usage = "torusrun shell [-h] [--rank N] [--role NAME] RUN [--proxy | -- COMMAND ...]"


def run(args: argparse.Namespace) -> int:
    from torusrun.orchestrator.cli.api import open_run

    if args.proxy:
        return _proxy(args)
    terminal = sys.stdin.isatty() and sys.stdout.isatty()
    return open_run(args.run_id).shell(*args.command, rank=args.rank, role=args.role, terminal=terminal)


def _proxy(args: argparse.Namespace) -> int:
    """Lead ssh to an sshd on the node; for a user, print how ssh does that."""
    from torusrun.orchestrator.beside import proxy
    from torusrun.orchestrator.cli.api import open_run

    if args.command:
        raise UserError("--proxy leads an ssh client to the node, and ssh runs the command: leave it out here")
    if sys.stdin.isatty():
        options = f" --rank {args.rank}" if args.rank else ""
        options += f" --role {args.role}" if args.role else ""
        print(proxy.configuration(args.run_id, options, _user(args.run_id)), end="")
        return DONE
    run = open_run(args.run_id)
    if args.admit:
        return proxy.serve(run.folder, args.rank, args.role, args.admit)
    return run.proxy(rank=args.rank, role=args.role)


def _user(run: str) -> str:
    """The name of the user on the hosts of a run."""
    from torusrun.orchestrator.base.environment import user_name
    from torusrun.orchestrator.remote import call, remote_runs

    known = remote_runs.find(run)
    return str(call.answer(known.host, {"do": "user"}, str)) if known else user_name()
