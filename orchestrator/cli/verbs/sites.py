"""
Yours are in ~/.config/torusrun/sites, and come before those of the same name that ship with torusrun.

examples:
  torusrun sites
  torusrun sites --json
"""

from __future__ import annotations

import argparse

from torusrun.orchestrator.cli.verbs import shared_arguments


def arguments(parser: argparse.ArgumentParser) -> None:
    """It has none of its own."""


def run(args: argparse.Namespace) -> int:
    from torusrun.orchestrator.sites.listing import listed

    return shared_arguments.show_table(args, "sites", listed())
