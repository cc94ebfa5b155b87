"""The arguments that several verbs share."""

from __future__ import annotations

import argparse


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
