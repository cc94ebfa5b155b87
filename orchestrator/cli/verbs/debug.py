"""
The archive has records, the job script, the site, and the last lines of each output.
It has no values of env, nothing that looks like a token, password or key, and
neither the run file, the launch order, your code nor checkpoints. Look through it
before you send it: an output may show what only you know to be secret.

examples:
  torusrun debug last
  torusrun debug last --to support.tar.gz
"""

from __future__ import annotations

import argparse
from pathlib import Path

from torusrun.orchestrator.base.errors import DONE, UserError
from torusrun.orchestrator.base.terminal.remarks import busy, is_quiet, result
from torusrun.orchestrator.cli.verbs import shared_arguments


def arguments(parser: argparse.ArgumentParser) -> None:
    shared_arguments.run_id(parser)
    parser.add_argument("--to", metavar="FILE", help="the new file; default: torusrun-debug-RUN.tar.gz")


def run(args: argparse.Namespace) -> int:
    from torusrun.orchestrator.base.private import plain
    from torusrun.orchestrator.keys.paths import absolute
    from torusrun.orchestrator.remote import remote_runs
    from torusrun.orchestrator.run.folder.index import find
    from torusrun.orchestrator.upkeep.support.archive import archive

    if away := remote_runs.find(args.run_id):
        raise UserError(f"{away.run} is on {away.host.address}: run `torusrun debug {away.run}` there")
    found = find(args.run_id)
    into = absolute(args.to or f"torusrun-debug-{found.run_id}.tar.gz")
    with busy("packing the records"):
        packed = archive(found, Path(into))
    listing = (plain(f"{one.size:10}  {one.name}{f'  ({one.note})' if one.note else ''}") for one in packed)
    if not is_quiet():
        print("\n".join(listing))
    result(str(into), f"{into}: without values of env, tokens, passwords and keys; look through it before you send it")
    return DONE
