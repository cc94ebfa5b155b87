"""
example:
  torusrun version
"""

from __future__ import annotations

import argparse
import platform

from orchestrator.base.errors import DONE
from orchestrator.base.version import __version__


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--short", action="store_true", help="print only the number")


def run(args: argparse.Namespace) -> int:
    print(__version__ if args.short else f"torusrun {__version__}, Python {platform.python_version()}")
    return DONE
