"""
A host that the ends of two runs name within a day, or that a check finds bad, is left out of
requests for a day, or for as long as forget_bad_nodes of a site says.
With a site behind a login node, name it: its memory is there.

examples:
  torusrun nodes
  torusrun nodes --site abci-v --json
  torusrun nodes add g0012 'g[0101-0104]' --site abci-v --reason "slow links" --for 2d
  torusrun nodes forgive g0012
  torusrun nodes forgive --all --site abci-v
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from operator import attrgetter
from typing import TYPE_CHECKING

from torusrun.orchestrator.base.errors import DONE, UserError
from torusrun.orchestrator.cli.verbs import shared_arguments

if TYPE_CHECKING:
    from torusrun.orchestrator.base.shown.table import Table
    from torusrun.orchestrator.keys.site import Site
    from torusrun.orchestrator.run.bad_nodes.bad_node import BlamedNode

BY_USER = "added by its user"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", choices=("ls", "add", "forgive"), nargs="?", default="ls", help="default: ls, the list")
    parser.add_argument("hosts", metavar="HOST", nargs="*", help="hosts, or lists as in 'n[3-5]'")
    parser.add_argument("--site", metavar="NAME", help="a site's name or path; needed by add; default: all sites")
    parser.add_argument("--reason", metavar="TEXT", help=f"add: why; default: {BY_USER}")
    parser.add_argument(
        "--for", metavar="TIME", dest="for_", help="add: for how long, as in 2d; default: the site's forget_bad_nodes"
    )
    parser.add_argument("--all", action="store_true", help="forgive: all hosts")
    parser.add_argument("--json", action="store_true", help="ls: as JSON")


def run(args: argparse.Namespace) -> int:
    _check(args)
    site = _site(args) if args.site else None
    if args.what == "ls":
        return _list(args)
    from torusrun.orchestrator.run.plan.attempt_plan import hosts

    named = hosts("HOST", args.hosts)
    return _add(args, named, site) if args.what == "add" else _forgive(args, named)


def _check(args: argparse.Namespace) -> None:
    """Raise UserError for options that do not go together."""
    if args.what == "ls" and args.hosts:
        raise UserError("ls takes no hosts: `torusrun nodes` lists all, `torusrun nodes add HOST --site S` adds one")
    if args.what == "add" and not (args.hosts and args.site):
        raise UserError("which hosts, of which site? Write `torusrun nodes add HOST --site NAME`")
    if args.what == "forgive" and bool(args.hosts) is args.all:
        raise UserError("forgive takes hosts, or --all: `torusrun nodes` lists the hosts")
    options = {"--reason": ("add", args.reason), "--for": ("add", args.for_), "--all": ("forgive", args.all)}
    for option, (what, given) in {**options, "--json": ("ls", args.json)}.items():
        if given and args.what != what:
            raise UserError(f"{option} is only for `torusrun nodes {what}`: leave it out")


def _site(args: argparse.Namespace) -> Site | None:
    """The site of --site. A site that has blamed hosts may be gone since; then it is None, unless hosts are added."""
    from torusrun.orchestrator.keys.load import load_site
    from torusrun.orchestrator.run.bad_nodes import memory
    from torusrun.orchestrator.run.folder.shown_plan import site_name

    try:
        return load_site(args.site)
    except UserError:
        known = {node.site for node in memory.blamed()}
        if args.what == "add" or site_name(args.site) not in known:
            raise
    return None


def _list(args: argparse.Namespace) -> int:
    from torusrun.orchestrator.run.bad_nodes import memory
    from torusrun.orchestrator.run.folder.shown_plan import site_name

    name = site_name(args.site)
    table = _table([node for node in memory.blamed() if name in ("", node.site)], time.time())
    return shared_arguments.show_table(args, "nodes", table, "no host was blamed")


def _table(nodes: Sequence[BlamedNode], now_s: float) -> Table[BlamedNode]:
    """A row for each host that was blamed, with the evidence below it, as of `now_s` (of time.time())."""
    from torusrun.orchestrator.base.shown.numbers import minute
    from torusrun.orchestrator.base.shown.table import Column, Table
    from torusrun.orchestrator.base.terminal.plain import plain
    from torusrun.orchestrator.run.state.pace import short
    from torusrun.training.counted import counted

    def left_out(node: BlamedNode) -> str:
        if node.until_s is None:
            return f"not yet: after {counted(node.more, 'more end')}"
        return f"for {short(node.until_s - now_s)}"

    def notes(node: BlamedNode) -> list[str]:
        runs = f" ({', '.join(map(plain, node.runs))})" if node.runs else ""
        return [f"  {plain(node.evidence)}{runs}"] if node.evidence or runs else []

    columns: tuple[Column[BlamedNode], ...] = (
        Column("HOST", lambda node: plain(node.host), key="host", right=False),
        Column("SITE", lambda node: plain(node.site), key="site", right=False),
        Column("WHY", lambda node: plain(node.reason), key="reason", right=False),
        Column("TIMES", lambda node: node.count, key="count", right=True, left_out=2),
        Column("LAST", lambda node: minute(node.last_s), right=False),
        Column("LEFT OUT", left_out, right=False),
        *(Column(None, attrgetter(key), key=key) for key in ("bad", "evidence", "first_s", "last_s", "until_s")),
        Column(None, lambda node: list(node.runs), key="runs"),
    )
    return Table(columns, nodes, notes)


def _add(args: argparse.Namespace, named: list[str], site: Site | None) -> int:
    from torusrun.orchestrator.run.bad_nodes import memory

    memory.blame(args.site, named, args.reason or BY_USER, "", for_s=_for_s(args, site))
    print(f"left out of the next requests: {', '.join(named)}")
    return DONE


def _for_s(args: argparse.Namespace, site: Site | None) -> float:
    """The seconds of --for, or those of the site. Raises UserError."""
    from torusrun.orchestrator.keys.kinds import EXPIRY
    from torusrun.orchestrator.run.bad_nodes.bad_node import DAY_S
    from torusrun.orchestrator.run.plan.attempt_plan import option

    if args.for_:
        return float(option("--for", EXPIRY, args.for_))
    return site.forget_bad_nodes_s if site else DAY_S


def _forgive(args: argparse.Namespace, named: list[str]) -> int:
    from torusrun.orchestrator.run.bad_nodes import memory

    forgiven = memory.forgive(None if args.all else named, args.site)
    print(f"forgiven: {', '.join(f'{node.host} ({node.site})' for node in forgiven) or 'none was blamed'}")
    return DONE
