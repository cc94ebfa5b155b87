"""
The port leads to PORT on the rank's host, and its address is printed. It needs no ssh to the host, since
the scheduler connects it. The name of a role in place of PORT is the port of that role. It ends with Ctrl-C, or with
the run's attempt.

exit codes: 0 the attempt has ended, 2 a mistake in the request, 3 the connection broke, 130 Ctrl-C

examples:
  torusrun forward last 6006
  torusrun forward last rollout
  torusrun forward last 8888 --rank 4 --listen 9999
"""

from __future__ import annotations

import argparse

from torusrun.orchestrator.cli.verbs import shared_arguments


def arguments(parser: argparse.ArgumentParser) -> None:
    shared_arguments.run_id(parser)
    what = "the port on that node, such as 6006 for TensorBoard; or a role, for its own port on its own node"
    parser.add_argument("port", metavar="PORT", type=_port, help=what)
    shared_arguments.rank(parser)
    listen = "the local port; default: PORT of 127.0.0.1, or a free one if that is in use"
    parser.add_argument("--listen", metavar="[ADDRESS:]PORT", default="", help=listen)
    parser.usage = "torusrun forward [-h] [--rank N] [--role NAME] [--listen [ADDRESS:]PORT] RUN PORT"


def _port(text: str) -> int | str:
    """A port, or the name of a role."""
    return text if text[:1].isalpha() else int(text)


def run(args: argparse.Namespace) -> int:
    from torusrun.orchestrator.cli.api import open_run

    return open_run(args.run_id).forward(args.port, rank=args.rank, role=args.role, listen=args.listen)
