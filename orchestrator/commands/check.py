"""
example:
  torusrun check examples/digits.yaml
"""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from orchestrator.commands import asked
from orchestrator.errors import DONE, USER_MISTAKE

if TYPE_CHECKING:
    from orchestrator.containers.findings import Finding


def arguments(parser: argparse.ArgumentParser) -> None:
    asked.run_file(parser)
    parser.add_argument("--json", action="store_true", help="as JSON")


def run(args: argparse.Namespace) -> int:
    from orchestrator.images import run_image
    from orchestrator.plans.plan import plan

    planned = plan(args.file, site=args.site, settings=args.settings)
    if (before := run_image.unbuilt(planned)) is not None:
        return _say(
            args.json, None, before, "no problem found; the image is not built yet, so what is in it was not checked"
        )
    image = run_image.of_plan(planned)
    found = run_image.findings(planned, image) if image else []
    path = image.path if image else None
    return _say(args.json, path, found, f"no problem found ({path or 'no image'})")


def _say(as_json: bool, image: str | None, found: list[Finding], nothing: str) -> int:
    if as_json:
        rows = [{"kind": f.kind, "severity": f.severity, "what": f.what, "why": f.why, "mend": f.mend} for f in found]
        print(json.dumps({"schema": 1, "image": image, "findings": rows}, indent=1))
    else:
        print("\n".join(map(str, found)) or nothing)
    return USER_MISTAKE if any(f.severity == "error" for f in found) else DONE
