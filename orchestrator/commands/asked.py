"""The arguments that several verbs share."""

from __future__ import annotations

import argparse
from pathlib import Path

from orchestrator.errors import UserError


def run_file(parser: argparse.ArgumentParser) -> None:
    """A run's YAML and what overrides it."""
    parser.add_argument("file", metavar="RUN.yaml", help="the run")
    parser.add_argument("--site", metavar="NAME", help="another site than the file says: a name or a path")
    parser.add_argument(
        "--set",
        metavar="KEY.SUB=VALUE",
        action="append",
        default=[],
        dest="settings",
        help="override one value; may be given several times",
    )


def site(parser: argparse.ArgumentParser) -> None:
    """A site alone."""
    parser.add_argument("--site", metavar="NAME", default="local", help="a site's name or path; default: %(default)s")


def run_id(parser: argparse.ArgumentParser) -> None:
    """A run that was submitted."""
    parser.add_argument("run_id", metavar="RUN", help="a run's id, the beginning of it, its folder, or 'last'")


def hosts_file(parser: argparse.ArgumentParser, purpose: str) -> None:
    """Hosts to think of; `hosts` reads them."""
    what = "one a line, or a list as in n[1-8]; more are spares"
    parser.add_argument("--hosts", metavar="FILE", help=f"{purpose}: {what}")


def hosts(name: str) -> list[str]:
    """The hosts in the file of --hosts, in order."""
    from orchestrator.cluster.hostlist import expand

    try:
        lines = Path(name).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"--hosts {name}: cannot be read: {error}") from None
    found = [host for line in lines if line.strip() for host in expand(line.split()[0])]
    if not found:
        raise UserError(f"--hosts {name}: there are no hosts in it; write one a line")
    return found
