"""
The file needs nothing else: no network, no scripts. It has the results, the curves, the attempts with their causes,
where the time went, the step times of ranks, the placement, the settings and the environment. Several runs are
overlaid and compared. The values of `env` are not in it; the last lines of the first error are.

examples:
  torusrun report last
  torusrun report 'digits*' -o digits.html
  torusrun report RUN -o report.html --force
"""

from __future__ import annotations

import argparse
from pathlib import Path

from torusrun.orchestrator.base.errors import DONE
from torusrun.orchestrator.cli.verbs import chosen


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_ids", metavar="RUN", nargs="+", help=chosen.RUNS)
    what = "the file to write, - for the output; default: report-RUN.html, or report.html for several runs"
    parser.add_argument("-o", metavar="FILE", dest="file", help=what)
    parser.add_argument("--force", action="store_true", help="overwrite the file")


def run(args: argparse.Namespace) -> int:
    from torusrun.orchestrator.remote import remote_runs
    from torusrun.orchestrator.run.state import selection
    from torusrun.orchestrator.show.page import document

    far = remote_runs.of_one_place(args.run_ids)
    here = [] if far else selection.named(args.run_ids)
    if args.file == "-":
        print(document.html(here), end="")
        return DONE
    names = [run.run for run in far] + [run.run_id for run in here]
    name = args.file or (f"report-{names[0]}.html" if len(names) == 1 else "report.html")
    path = document.check(Path(name), force=args.force)
    if far:
        from torusrun.orchestrator.cli.handles_there import page

        print(document.write(path, page(far)))
        return DONE
    print(document.write(path, document.html(here)))
    return DONE
