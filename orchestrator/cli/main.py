"""`torusrun VERB ...`: one lazy import per verb, so that help and status load only the code they need."""

# ruff: noqa: E402

from __future__ import annotations

import os
import sys

# An empty entry of PYTHONPATH, as in `export PYTHONPATH=/lib:$PYTHONPATH`, means the working directory. Nothing is
# imported from there, unless torusrun itself is in it.
named = os.environ["PYTHONPATH"].split(os.pathsep) if os.environ.get("PYTHONPATH") else []
kept = {os.path.normpath(entry) for entry in named if os.path.isabs(entry)}
kept.add(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
try:
    foreign = {os.path.abspath(entry) for entry in named if not os.path.isabs(entry)}
    foreign |= set() if os.getcwd() in kept else {""}
except OSError:  # the working directory is gone
    foreign = {""}
sys.path[:] = [entry for entry in sys.path if entry not in foreign - kept]

import argparse
import importlib
import io
from collections.abc import Sequence

from orchestrator.base import private
from orchestrator.base.environment import safe
from orchestrator.base.errors import DONE, SITE_FAILED, USER_MISTAKE, TorusrunError
from orchestrator.base.version import __version__

VERBS = {
    "init": "write the file of a site from what this login node and its scheduler report",
    "doctor": "find out what a site lacks for a run, and name the remedies",
    "sites": "list the sites that --site can name",
    "build": "build a container image, unless the cache has it",
    "image": "list, inspect, verify, export, sign or remove built images, or print a definition",
    "check": "find mismatches between a run, its image and its site",
    "plan": "show a run before it is submitted: site, nodes, ranks, grid, training",
    "predict": "predict how long a run takes; compare with published records and other sizes",
    "recipes": "list published trainings, and show one: its schedule, its sources, the changes of a run",
    "calibrate": "measure compute, latency and bandwidth of a site, for predict and plan",
    "submit": "submit a run (--wait follows it to its end, --dry-run shows its job)",
    "hold": "keep an allocation in which submit --in starts attempts without the queue",
    "shell": "open a terminal, or run a command, beside a running rank, in its image",
    "status": "show the state of your runs: step, time left, loss, hosts or reason",
    "watch": "follow one run or many to their ends, on the whole screen of a terminal",
    "logs": "show the log of rank 0, of another rank, or of all by time; --errors for tracebacks",
    "explain": "explain why a run ended: cause, first error, evidence, what to do",
    "cancel": "end runs, after a checkpoint",
    "resume": "submit the next attempt of a run, from its newest complete checkpoint",
    "nodes": "list the nodes that broke runs and are left out of requests; add or forgive some",
    "collect": "copy logs, metrics and checkpoints of a run into a folder",
    "schema": "print the JSON schema of a run, site or image file",
    "version": "print the version of torusrun",
}
EPILOG = """
exit codes: 0 done, 1 the run failed, 2 a mistake in the request, 3 the scheduler or the site failed

  torusrun submit examples/digits.yaml --wait
  torusrun VERB --help
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb; returns the exit code."""
    os.environ.update(safe(os.environ))  # for libraries that start programs, as fabric does for a ProxyCommand
    os.umask(private.UMASK)  # new files are for their user only
    _open_what_is_closed()
    for stream in (sys.stdout, sys.stderr):  # a terminal may be unable to show a character of a name
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    words = sys.argv[1:] if argv is None else list(argv)
    try:
        args = _parse(words)
        code: int = args.run(args)
        sys.stdout.flush()
        return code
    except TorusrunError as error:
        print(f"torusrun: {private.plain(str(error))}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("torusrun: interrupted; submitted runs continue", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of our output has ended, as `| head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except OSError as error:  # a failure of the file system that was not handled elsewhere
        name = f"{error.filename}: " if error.filename else ""
        print(f"torusrun: {private.plain(name)}{error.strerror or error}", file=sys.stderr)
        return SITE_FAILED
    except Exception as error:
        from orchestrator.base.defect import report

        print(f"torusrun: {report(error, words[:1])}", file=sys.stderr)
        return SITE_FAILED


def _open_what_is_closed() -> None:
    """Open closed standard streams on /dev/null, so that the next opened file does not take their place."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115


def _parse(argv: list[str]) -> argparse.Namespace:
    listing = "\n".join(f"  {verb:10}{text}" for verb, text in VERBS.items())
    parser = argparse.ArgumentParser(
        prog="torusrun",
        usage="torusrun VERB ...",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=f"One YAML becomes a placed, watched and resumable multi-node training.\n\nverbs:\n{listing}",
        epilog=EPILOG,
    )
    parser.add_argument("--version", action="version", version=f"torusrun {__version__}")
    parser.add_argument("verb", nargs="?", help=argparse.SUPPRESS)
    top = parser.parse_args(argv[:1])
    if top.verb is None:
        parser.print_help()
        raise SystemExit(USER_MISTAKE if argv else DONE)
    if top.verb not in VERBS:
        from training.recipe.near import did_you_mean

        parser.error(f"there is no verb {top.verb!r}{did_you_mean(top.verb, VERBS)} (verbs: {', '.join(VERBS)})")
    module = importlib.import_module(f"orchestrator.cli.verbs.{top.verb}")
    verb = argparse.ArgumentParser(
        prog=f"torusrun {top.verb}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=f"{VERBS[top.verb].capitalize()}.",
        epilog=module.__doc__,
    )
    module.arguments(verb)
    words, command = argv[1:], []
    if getattr(module, "TAKES_A_COMMAND", False) and "--" in words:  # argparse confuses it with options before it
        at = words.index("--")
        words, command = words[:at], words[at + 1 :]
    args = verb.parse_args(words)
    args.command = command
    args.run = module.run
    return args


if __name__ == "__main__":
    sys.exit(main())
