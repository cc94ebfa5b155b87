"""
example:
  torusrun records
"""

from __future__ import annotations

import argparse

from torusrun.orchestrator.base.errors import DONE


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="as JSON")


def run(args: argparse.Namespace) -> int:
    from torusrun.orchestrator.predict.answers.published import published

    print(published().text(as_json=args.json))
    return DONE
