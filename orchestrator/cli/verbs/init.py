"""
Run it on a login node, or name one with --host. It queries the scheduler and the machine, and asks you for the rest:
the queue, if several fit, and the account; through --host it asks nothing. --yes takes sensible values and names them.
Other verbs find the file by --site NAME.

examples:
  torusrun init
  torusrun init mycluster --queue gpu --account chem --yes
  torusrun init here --scheduler local
  torusrun init mycluster --host me@login.example --yes
"""

from __future__ import annotations

import argparse
import functools
import sys
from typing import TYPE_CHECKING

from torusrun.orchestrator.base.errors import UserError

if TYPE_CHECKING:
    from torusrun.orchestrator.sites.choices import Choices

OPTIONS = {
    "scheduler": ("NAME", "slurm, pbs, gridengine or local (this machine); default: the scheduler that answers"),
    "cluster": ("NAME", "a known cluster, or generic; default: recognised by host names, queues and resources"),
    "queue": ("NAME", "partition or queue; default: init asks if several fit"),
    "account": ("NAME", "account or group to charge; default: init asks if the cluster needs one"),
    "pe": ("NAME", "Grid Engine's parallel environment; default: init asks if several fit"),
    "runs": ("FOLDER", "folder of run folders, which the nodes see; default: ~/torusrun/runs"),
}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", nargs="?", help="the site's name; default: the cluster's")
    for name, (value, text) in OPTIONS.items():
        parser.add_argument(f"--{name}", metavar=value, help=text)
    parser.add_argument(
        "--host", metavar="HOST", help="the login node, as ssh takes it: the site is reached through it"
    )
    parser.add_argument("--yes", "-y", action="store_true", help="ask no questions: use sensible values, and list them")
    parser.add_argument("--force", action="store_true", help="replace the file if the site exists")
    parser.add_argument("--json", action="store_true", help="as JSON: what `torusrun doctor` finds about the new site")


def run(args: argparse.Namespace) -> int:
    from torusrun.orchestrator.base import private
    from torusrun.orchestrator.cli.verbs import doctor
    from torusrun.orchestrator.sites.choices import Choices
    from torusrun.orchestrator.sites.make import make

    terminal = sys.stdin.isatty() and not args.yes and not args.json
    choices = Choices({name: getattr(args, name) for name in OPTIONS}, args.yes, input if terminal else None)
    compose = functools.partial(_through, args.host) if args.host else None
    written = make(args.name, choices, force=args.force, compose=compose)
    if args.json:
        return doctor.examine(written.name, as_json=True)
    print(private.plain(written.text), end="")
    print(f"\nwritten: {written.path}; use it with --site {written.name}\n", flush=True)
    return doctor.examine(written.name)


def _through(address: str, name: str | None, choices: Choices) -> tuple[str, str]:
    """(the name of the site behind a login node, the text of its file here)."""
    from torusrun.orchestrator.keys.kinds import HOST
    from torusrun.orchestrator.remote import asking
    from torusrun.orchestrator.remote.links.host import LoginHost
    from torusrun.orchestrator.remote.session import Session

    try:
        HOST.parse(address)
    except ValueError as error:
        raise UserError(f"--host: {address!r} {error}") from None
    request = {"do": "init", "name": name, "options": dict(choices.options), "yes": choices.yes}
    with Session(LoginHost(address)) as link:
        found, text = asking.answer(link, request, tuple[str, str], text=str)
    title, _, keys = text.partition("\n")
    return found, f"{title}\nhost: {address}\n{keys}"
