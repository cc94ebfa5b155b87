"""
example:
  torusrun version
"""

from __future__ import annotations

import argparse
import json
import platform

from torusrun.orchestrator.base.errors import DONE
from torusrun.orchestrator.base.version import __version__


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--short", action="store_true", help="print only the number")
    parser.add_argument("--json", action="store_true", help="as JSON")


def run(args: argparse.Namespace) -> int:
    if args.json:
        print(json.dumps({"schema": 1, "torusrun": __version__, "python": platform.python_version()}, indent=1))
        return DONE
    print(__version__ if args.short else f"torusrun {__version__}, Python {platform.python_version()}")
    return DONE
