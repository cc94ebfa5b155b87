"""
example:
  torusrun check examples/digits.yaml
"""

from __future__ import annotations

import argparse
import json

from orchestrator.commands import asked
from orchestrator.errors import DONE, USER_MISTAKE


def arguments(parser: argparse.ArgumentParser) -> None:
    asked.run_file(parser)
    parser.add_argument("--json", action="store_true", help="as JSON")


def run(args: argparse.Namespace) -> int:
    from orchestrator import images
    from orchestrator.planning import plan

    planned = plan(args.file, site=args.site, settings=args.settings)
    image = images.of_plan(planned)
    found = images.findings(planned, image) if image else []
    if args.json:
        rows = [{"kind": f.kind, "severity": f.severity, "what": f.what, "why": f.why, "mend": f.mend} for f in found]
        print(json.dumps({"schema": 1, "image": image.path if image else None, "findings": rows}, indent=1))
    else:
        print("\n".join(map(str, found)) or f"nothing found that does not fit ({image.path if image else 'no image'})")
    return USER_MISTAKE if any(f.severity == "error" for f in found) else DONE
