"""
The measurement inside a job is not there yet: write the file from what a benchmark of yours measured, as in
  {"schema": 1, "rows": [{"link": "node", "operation": "all_reduce", "ranks": 4, "bytes": 1048576, "time_s": 0.0001}]}
Rows of one link class come from ranks that this link joins; at least two sizes each, innermost link first.

example:
  torusrun calibrate measured.json > links.yaml && torusrun predict run.yaml --network links.yaml
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from orchestrator.errors import DONE, UserError


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE.json", type=Path, help="measured times")
    parser.add_argument("--json", action="store_true", help="as JSON")


def run(args: argparse.Namespace) -> int:
    from orchestrator.predict import calibration

    try:
        found = calibration.fits(calibration.read(_read(args.file)))
        if not found:
            raise UserError("has no rows")
    except UserError as error:
        raise UserError(f"{args.file}: {error}") from None
    print(json.dumps({"schema": 1, "links": [fit.__dict__ for fit in found]}, indent=1) if args.json else _yaml(found))
    return DONE


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise UserError(f"is not JSON: {error}") from None


def _yaml(fits: list[Any]) -> str:
    """The snippet that predict --network reads."""
    lines = ["# fitted to measured times; the measurement inside a job is not there yet", "network:"]
    for fit in fits:
        lines += [
            f"  {json.dumps(fit.link)}:  # {fit.rows} rows, worst error {fit.worst_percent:.1f} %",
            f"    members: {fit.ranks}",
            f"    bandwidth_bytes_per_s: {1 / fit.beta_s_per_byte:.6g}",
            f"    latency_s: {fit.alpha_s:.6g}",
        ]
    return "\n".join(lines)
