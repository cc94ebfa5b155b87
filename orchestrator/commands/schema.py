"""
example:
  torusrun schema run > run.schema.json
"""

from __future__ import annotations

import argparse
import json

from orchestrator.errors import DONE


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", choices=("run", "site"), help="which file")


def run(args: argparse.Namespace) -> int:
    from orchestrator.spec.run import RunSpec
    from orchestrator.spec.schema import schema
    from orchestrator.spec.site import Site

    print(json.dumps(schema({"run": RunSpec, "site": Site}[args.what], f"torusrun {args.what}"), indent=1))
    return DONE
