"""
example:
  torusrun cancel last
"""

from __future__ import annotations

import argparse

from orchestrator.commands import asked
from orchestrator.errors import DONE


def arguments(parser: argparse.ArgumentParser) -> None:
    asked.run_id(parser)


def run(args: argparse.Namespace) -> int:
    from orchestrator.api import open_run
    from orchestrator.remote import verbs

    if (code := verbs.run(args.run_id, "cancel")) is not None:
        return code
    asked_run = open_run(args.run_id)
    asked_run.cancel()
    print(f"{asked_run.id} was asked to end; `torusrun watch {asked_run.id}` shows when it has")
    return DONE
