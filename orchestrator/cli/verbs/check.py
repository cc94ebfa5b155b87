"""
example:
  torusrun check examples/digits.yaml
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from typing import TYPE_CHECKING

from torusrun.orchestrator.base.errors import DONE, USER_MISTAKE
from torusrun.orchestrator.base.terminal.plain import plain
from torusrun.orchestrator.cli.verbs import shared_arguments

if TYPE_CHECKING:
    from torusrun.orchestrator.images.checks.findings import Finding
    from torusrun.orchestrator.planning.plan import Plan


def arguments(parser: argparse.ArgumentParser) -> None:
    shared_arguments.run_file(parser)
    shared_arguments.keys(parser, beside_file=True)
    parser.add_argument("--json", action="store_true", help="as JSON")


def run(args: argparse.Namespace) -> int:
    from torusrun.orchestrator.planning.image import checking, run_image
    from torusrun.orchestrator.planning.plan import plan

    planned = plan(args.file, site=args.site, settings=args.settings)
    if planned.site.host:
        from torusrun.orchestrator.cli.elsewhere import shown
        from torusrun.orchestrator.remote import of_file

        options = ["--json"] if args.json else []
        return shown(of_file.run("check", planned, args.file, options, site=args.site, settings=args.settings))
    if (before := checking.unbuilt(planned)) is not None:
        return _say(args.json, None, before, "the image is not built yet, so its contents were not checked")
    try:
        image = run_image.of_plan(planned)
    except run_image.Unusable as error:
        return _say(args.json, error.image, [error.finding], error.image)
    if image is None and (planned.run.software.given or planned.site.software.given):
        return _software(args.json, planned)
    if image is None:
        return _say(args.json, None, [], "the run has no image, so there is nothing to check")
    return _say(args.json, image.path, checking.findings(planned, image), image.path)


def _software(as_json: bool, planned: Plan) -> int:
    """Check the software that a run without an image activates."""
    from torusrun.orchestrator.sites.checks import software

    found = list(software.checks(planned.site, planned.run.software))
    if as_json:
        print(json.dumps({"schema": 2, "image": None, "findings": [], "environment": [c.as_json() for c in found]}))
    else:
        for check in found:
            print(f"{check.outcome:8} {check.name:18} {plain(check.said)}")
            if check.mend:
                print(f"{'':27} mend: {check.mend}")
    return USER_MISTAKE if any(check.outcome == "failed" for check in found) else DONE


def _say(as_json: bool, image: str | None, found: list[Finding], about: str) -> int:
    if as_json:
        print(json.dumps({"schema": 2, "image": image, "findings": [f.as_json() for f in found]}, indent=1))
    else:
        for finding in found:
            print(finding)
            if finding.evidence:
                print(f"    {finding.evidence}")
        print(f"{about}{_counted(found)}")
    return USER_MISTAKE if any(f.severity == "error" for f in found) else DONE


def _counted(found: list[Finding]) -> str:
    """The number of findings for each outcome."""
    if not found:
        return ""
    count = Counter("warned" if f.severity == "warning" else f.outcome for f in found)
    words = (
        f"{count['does not fit']} do not fit", f"{count['warned']} warn", f"{count['fits']} fit",
        f"{count['could not be looked at']} could not be looked at",
    )  # fmt: skip
    return ": " + ", ".join(words)
