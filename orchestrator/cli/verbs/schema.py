"""
example:
  torusrun schema run > run.schema.json
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from torusrun.orchestrator.base.errors import DONE


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", choices=("run", "site", "image"), help="the kind of file")


def run(args: argparse.Namespace) -> int:
    from torusrun.orchestrator.images.definitions.image_file import ImageFile
    from torusrun.orchestrator.keys.run import RunSpec
    from torusrun.orchestrator.keys.site import Site
    from torusrun.orchestrator.keys.write import schema

    declared: type[Any] = {"run": RunSpec, "site": Site, "image": ImageFile}[args.what]
    print(json.dumps(schema(declared, f"torusrun {args.what}"), indent=1))
    return DONE
