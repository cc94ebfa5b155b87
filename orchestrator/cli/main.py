"""`torusrun VERB ...`: a verb is imported when it is called, so that help and status load only the code they need."""

# ruff: noqa: E402

from __future__ import annotations

import os
import sys

# An empty entry of PYTHONPATH, as in `export PYTHONPATH=/lib:$PYTHONPATH`, means the working directory. Nothing is
# imported from there.
named = os.environ["PYTHONPATH"].split(os.pathsep) if os.environ.get("PYTHONPATH") else []
kept = {os.path.normpath(entry) for entry in named if os.path.isabs(entry)}
try:
    foreign = {os.path.abspath(entry) for entry in named if not os.path.isabs(entry)}
    foreign |= set() if os.getcwd() in kept else {""}
except OSError:  # the working directory is gone
    foreign = {""}
sys.path[:] = [entry for entry in sys.path if entry not in foreign - kept]

import argparse
import io
import re
from collections.abc import Callable, Sequence

from torusrun.orchestrator.base import private
from torusrun.orchestrator.base.environment import safe
from torusrun.orchestrator.base.errors import DONE, SITE_FAILED, USER_MISTAKE, TorusrunError, UserError
from torusrun.orchestrator.base.terminal.remarks import printed, set_quiet
from torusrun.orchestrator.cli.verb_list import RESULTS, VERBS, module_of, no_verb, parser_of, top_parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run a verb; returns the exit code."""
    os.environ.update(safe(os.environ))  # for libraries that start programs, as fabric does for a ProxyCommand
    os.umask(private.UMASK)  # new files are for their user only
    _open_what_is_closed()
    for stream in (sys.stdout, sys.stderr):  # a terminal may be unable to show a character of a name
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    words = sys.argv[1:] if argv is None else list(argv)
    try:
        args = _parse(words)
        set_quiet(args.quiet)
        code: int = _run(args, words)
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
        from torusrun.orchestrator.base.defect import report

        print(f"torusrun: {report(error, words[:1])}", file=sys.stderr)
        return SITE_FAILED


def _run(args: argparse.Namespace, words: Sequence[str]) -> int:
    """Run the verb: on the login node of its run or its site, or here, with its RESULTS as JSON if --json is given."""
    from torusrun.orchestrator.cli import elsewhere  # imported late: the help needs it not

    if (code := elsewhere.run(words[0], words[1:], args)) is not None:
        return code
    prints_results = RESULTS.get(words[0])
    if not (prints_results and args.json and prints_results(args)):
        return int(args.run(args))
    args.json = False
    return _as_json(lambda: args.run(args))


def _as_json(act: Callable[[], int]) -> int:
    """Run a verb, and print the lines that --quiet leaves, such as ids and paths, as a list.

    After an error, or on SIGTERM and SIGHUP, the list is printed unless empty: a submitted run must not lose its id.
    """
    import json
    from contextlib import redirect_stdout

    from torusrun.orchestrator.base import signals

    set_quiet(True)
    text, done = io.StringIO(), False
    try:
        with signals.in_order(), redirect_stdout(text):
            code = act()
        done = True
        return code
    finally:
        results = text.getvalue().splitlines()
        if done or results:
            printed(json.dumps({"schema": 1, "results": results}, indent=1))


def _open_what_is_closed() -> None:
    """Open closed standard streams on /dev/null, so that the next opened file does not take their place."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = top_parser()
    parser.add_argument("verb", nargs="?", help=argparse.SUPPRESS)
    top = parser.parse_args(argv[:1])
    if top.verb is None:
        parser.print_help()
        raise SystemExit(USER_MISTAKE if argv else DONE)
    if top.verb not in VERBS:
        raise UserError(no_verb(top.verb))
    module, verb = module_of(top.verb), parser_of(top.verb)
    words, command = argv[1:], []
    if getattr(module, "TAKES_A_COMMAND", False) and "--" in words:  # argparse confuses it with options before it
        at = words.index("--")
        words, command = words[:at], words[at + 1 :]
    if empty := _without_value(words):
        raise UserError(f"{empty}: its value is empty; write one, or leave it out")
    args = verb.parse_args(words)
    args.command, args.run = command, module.run
    return args


def _without_value(words: Sequence[str]) -> str:
    """The first option or argument that is empty, as in `--gpus=$UNSET` and `rm "$UNSET"`; '' for none."""
    for place, (before, word) in enumerate(zip(["", *words], words, strict=False), 1):
        if re.fullmatch(r"--[a-z][a-z-]*=", word):
            return word[:-1]
        if not word:
            return before if before.startswith("-") else f"argument {place}"
    return ""


if __name__ == "__main__":
    sys.exit(main())
