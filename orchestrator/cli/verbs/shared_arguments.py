"""The arguments that several verbs share, and the answers to --json."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torusrun.orchestrator.base.errors import DONE, UserError
from torusrun.orchestrator.keys.paths import absolute, decoded, expanded, read_bytes

if TYPE_CHECKING:
    from torusrun.orchestrator.base.shown.table import Table
    from torusrun.orchestrator.keys.site import Site
    from torusrun.orchestrator.run.attempts.create import Origin
    from torusrun.orchestrator.run.state.selection import Selection

LARGEST_BYTES = 64_000_000  # of a file with hosts
MOST_IMAGES = 1_000_000_000  # of a GPU, in a step or a second
RUN = "a run's id, the start of its id, its folder, or 'last'; last~1 is the one before"


def show(args: argparse.Namespace, record: Mapping[str, Any], text: str) -> int:
    """Print the record with --json, or else the text; returns DONE."""
    print(json.dumps({"schema": 1, **record}, indent=1) if args.json else text)
    return DONE


def show_table(args: argparse.Namespace, name: str, table: Table[Any], none: str = "") -> int:
    """Print the table, or `none` without a row; with --json its rows under this name. Returns DONE."""
    from torusrun.orchestrator.base.terminal.output import width

    text = "\n".join(table.lines(width(sys.stdout))) if table.rows or not none else none
    return show(args, {name: table.as_json()}, text)


def run_file(parser: argparse.ArgumentParser) -> None:
    """Add the argument RUN.yaml and the options that override it."""
    parser.add_argument("file", metavar="RUN.yaml", help="the run file")
    parser.add_argument("--site", metavar="NAME", help="a site to use in place of the file's: a name or a path")
    settings(parser)


def settings(parser: argparse.ArgumentParser) -> None:
    repeated(parser, "--set", "KEY.SUB=VALUE", "override one key", dest="settings")


def repeated(parser: argparse.ArgumentParser, option: str, metavar: str, text: str, **how: str) -> None:
    """Add an option that may be repeated, whose values are a list."""
    text = f"{text}; may be repeated"
    parser.add_argument(option, metavar=metavar, action="append", default=[], help=text, **how)  # type: ignore[arg-type]


def keys(parser: argparse.ArgumentParser) -> None:
    """Add the options that are keys of a run. They join the values of --set, and the last value wins."""
    ranks = parser.add_mutually_exclusive_group()
    key(parser, "-n", "-N", "--nodes", metavar="N", help="nodes to ask for")
    key(ranks, "--gpus", metavar="N", help="GPUs to use on a node, with one rank for each")
    key(ranks, "--ranks-per-node", metavar="N", help="ranks on a node; default: the site's")
    key(parser, "--time", metavar="TIME", help="time limit, as in 2h; default: 1h")
    key(parser, "--queue", metavar="NAME", help="partition or queue; default: the site's")
    key(parser, "--account", metavar="NAME", help="account to charge; default: the site's")
    key(parser, "--qos", metavar="NAME", help="quality of service")
    key(parser, "--constraint", metavar="WORDS", help="features of its nodes, in the scheduler's words")
    key(parser, "--reservation", metavar="NAME", help="reservation to run in")
    key(parser, "--mem", metavar="SIZE", help="memory of a node, as in 200G")
    key(parser, "--cpus-per-rank", metavar="N", help="cores for each rank")


def key(parser: argparse._ActionsContainer, *names: str, **how: str) -> None:
    """Add an option that is a key of a run."""
    parser.add_argument(*names, action=_Key, default=[], dest="settings", **how)  # type: ignore[arg-type]


class _Key(argparse.Action):
    """Adds an option that is a key of a run to the settings, as '--nodes=4'."""

    def __call__(self, _: object, args: argparse.Namespace, value: object, *__: object) -> None:
        long = next(name for name in self.option_strings if name.startswith("--"))
        args.settings = [*args.settings, f"{long}={value}"]


def sweep(parser: argparse.ArgumentParser) -> None:
    """Add the options that make a sweep of a run file."""
    repeated(parser, "--sweep", "KEY=A,B,C", "make a run for each of these values")


def site(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--site", metavar="NAME", default="local", help="a site's name or path; default: %(default)s")


def here(site: Site, verb: str) -> None:
    """Raise UserError if the site has a login node and the verb does not work through it."""
    if site.host:
        mend = f"`ssh {site.host}`, install torusrun there, and run it"
        raise UserError(f"the site is reached through {site.host}, and `torusrun {verb}` is not: {mend}")


def context(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--context", metavar="FOLDER", type=absolute, help="where a Dockerfile copies from; default: its own folder"
    )


def run_id(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_id", metavar="RUN", help=RUN)


def rank(parser: argparse.ArgumentParser) -> None:
    """Add the options that name a rank, for its node."""
    text = "on the node of this rank; default: %(default)s"
    parser.add_argument("--rank", metavar="N", type=int, default=0, help=text)
    role(parser)


def role(parser: argparse.ArgumentParser) -> None:
    """Add the option that makes --rank the number of a rank among those of a role."""
    parser.add_argument("--role", metavar="NAME", default="", help="of this role; default: the main role")


def filters(parser: argparse.ArgumentParser, *, times: bool = True) -> None:
    """Add the options that select runs by their facts, which `selection` reads; `times` of their submission, too."""
    parser.set_defaults(since=None, before=None)
    parser.add_argument("--state", metavar="STATES", help="only runs in these states, as in running,failed")
    parser.add_argument("--site", metavar="NAME", help="only runs of this site")
    if not times:
        return
    since = "only runs submitted since: 2h or 3d ago, 2026-11-01, or 2026-11-01T14:30"
    before = "only runs submitted before: 30d ago, or a date as above"
    parser.add_argument("--since", metavar="TIME", help=since)
    parser.add_argument("--before", "--older-than", metavar="TIME", help=before)


def selection(args: argparse.Namespace, elsewhere: Collection[str] = ()) -> Selection:
    """What the options of `filters` select; `elsewhere` are the sites of runs on login nodes. Raises UserError."""
    from torusrun.orchestrator.run.state import selection

    return selection.Selection(
        selection.states(args.state) if args.state is not None else frozenset(),
        selection.site(args.site, elsewhere) if args.site is not None else "",
        selection.moment("--since", args.since) if args.since is not None else None,
        selection.moment("--before, --older-than", args.before) if args.before is not None else None,
    )


def held(parser: argparse.ArgumentParser) -> None:
    text = "start it in this held allocation (`torusrun hold`), without the queue; 'last' is the newest one"
    parser.add_argument("--in", metavar="HELD", dest="held", default="", help=text)


def chosen_elsewhere(parser: argparse.ArgumentParser) -> None:
    """Add the hidden options of a submission from another machine: the run's id, and a file with its origin."""
    parser.add_argument("--id", default="", help=argparse.SUPPRESS)
    parser.add_argument("--origin", help=argparse.SUPPRESS)


def origin(args: argparse.Namespace) -> Origin | None:
    """The origin of a run from another machine."""
    if not args.origin:
        return None
    from torusrun.orchestrator.base.json_files import read_object
    from torusrun.orchestrator.run.attempts.create import Origin

    return Origin(**(read_object(Path(args.origin)) or {}))


def hosts_file(parser: argparse.ArgumentParser, purpose: str) -> None:
    """Add the option --hosts, a file that `hosts` reads."""
    what = "a host file of a launcher or scheduler, or lists like n[1-8]; surplus hosts are spares"
    parser.add_argument("--hosts", metavar="FILE", help=f"{purpose}: {what}")


def hosts(name: str) -> list[str]:
    """The hosts in the file of --hosts, in order. Raises UserError with the wrong line."""
    from torusrun.orchestrator.place.hosts.host_file import WrongLine, hosts_of

    try:
        names = hosts_of(decoded(read_bytes(expanded(name), LARGEST_BYTES)))
    except OSError as error:
        raise UserError(f"--hosts {name}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UserError(f"--hosts {name}: this is not UTF-8 text (byte {error.start})") from None
    except WrongLine as error:
        raise UserError(f"--hosts {name}:{error.number}: {error}") from None
    if not names:
        raise UserError(f"--hosts {name}: it has no hosts; write one per line")
    return names
