"""
No value of `env` is shown. A run of `torusrun reproduce` is compared with its original once it is over.

examples:
  torusrun show last
  torusrun show last --json
"""

from __future__ import annotations

import argparse
import json

from torusrun.orchestrator.base.errors import DONE
from torusrun.orchestrator.cli.verbs import shared_arguments


def arguments(parser: argparse.ArgumentParser) -> None:
    shared_arguments.run_id(parser)
    parser.add_argument("--json", action="store_true", help="as JSON, with every known value")


def run(args: argparse.Namespace) -> int:
    from torusrun.orchestrator.run.folder.index import find
    from torusrun.orchestrator.run.state.poll import PATIENCE_S, views
    from torusrun.orchestrator.show.origin import origin
    from torusrun.orchestrator.show.screen.printed import show_table

    folder = find(args.run_id)
    (view,) = views([folder], patience_s=PATIENCE_S)
    shown = origin(folder, view)
    if args.json:
        print(json.dumps(shown.as_json(), indent=1))
    else:
        show_table(shown.rows(), view.state)
    return DONE
