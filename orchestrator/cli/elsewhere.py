"""Verbs for runs and sites on a login node, which runs the same verb; its output and exit code are shown here."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from torusrun.orchestrator.base.errors import DONE, UserError

if TYPE_CHECKING:
    from torusrun.orchestrator.remote.call import VerbOutput
    from torusrun.orchestrator.remote.host import LoginHost
    from torusrun.orchestrator.remote.remote_runs import Known
    from torusrun.orchestrator.run.state.view import View

OF_SITE = ("doctor", "gc", "nodes")
ACTS = ("cancel", "resume", "rm")  # on runs: they end there without a link, too
REPORTS = ("explain", "logs", "show", "status", "watch")
ON_TERMINAL = ("watch",)  # drawn there, if this program is on a terminal
RUNS, OTHER = ("run_id", "run_ids"), "other"  # the arguments that name runs, and the run of --compare


def run(verb: str, words: Sequence[str], args: argparse.Namespace) -> int | None:
    """Run the verb with these words on the login node of its runs or its site; its exit code. None if they are here.

    Raises UserError if its runs are in several places, SiteError if the login node does not answer.
    """
    if verb in OF_SITE:
        return _of_site(verb, words, args)
    compares = verb == "reproduce" and args.other is not None
    if not (verb in (*ACTS, *REPORTS) or compares) or not _has_far_runs():
        return None
    if not (known := _meant(verb, args)):
        return None
    if verb in ACTS:
        return _act(verb, words, args, known)
    return _passed(known[0].host, verb, _renamed(verb, words, known))


def _has_far_runs() -> bool:
    """Whether any run was submitted to a login node; without the imports that more would need."""
    from torusrun.orchestrator.keys.paths import state_folder

    with suppress(OSError, UserError), os.scandir(state_folder() / "remote") as entries:
        return any(entry.name.endswith(".json") for entry in entries)
    return False


def _of_site(verb: str, words: Sequence[str], args: argparse.Namespace) -> int | None:
    from torusrun.orchestrator.keys.load import load_site

    with suppress(UserError):  # which the verb itself reports
        if args.site and load_site(args.site).host:
            from torusrun.orchestrator.remote import of_file

            return shown(of_file.of_site(verb, args.site, _options(verb, words, {"site": ()})))
    return None


def doctor(site: str, *, as_json: bool) -> int:
    """Run `torusrun doctor` on the login node of a site that has just been made."""
    return _of_site("doctor", ["--json"] if as_json else [], argparse.Namespace(site=site)) or DONE


def _meant(verb: str, args: argparse.Namespace) -> list[Known]:
    """The runs on a login node that the arguments name, or a sweep as a whole; [] if they are here."""
    from torusrun.orchestrator.remote import remote_runs

    if verb == "status":  # of several hosts it merges the rows
        is_plain = not (args.long or args.if_there or args.state or args.site)
        one_word = args.run_ids[0] if is_plain and len(args.run_ids) == 1 else ""
        return [sweep] if (sweep := remote_runs.sweep(one_word)) else []
    if hasattr(args, "run_id"):
        named = [args.run_id, *([args.other] if verb == "reproduce" else [])]
        known = [run for word in named if (run := remote_runs.find(word))]
        if known:
            remote_runs.of_one_place(named)
        return known
    if verb in ACTS and len(args.run_ids) == 1 and (sweep := remote_runs.sweep(args.run_ids[0])):
        return [sweep]
    if args.run_ids:
        return remote_runs.of_one_place(args.run_ids)
    if verb != "watch":
        return []
    from torusrun.orchestrator.cli.verbs.chosen import at_work

    return [] if at_work() else remote_runs.of_one_place([])


def _act(verb: str, words: Sequence[str], args: argparse.Namespace, known: Sequence[Known]) -> int:
    """Run a verb that acts on runs. Those that a pattern selects are shown first, without those it may not act on."""
    from torusrun.orchestrator.base.terminal.remarks import progress
    from torusrun.orchestrator.cli.verbs import chosen
    from torusrun.orchestrator.remote import call, remote_runs, status
    from torusrun.orchestrator.remote.host import LinkLost
    from torusrun.orchestrator.run.state.selection import is_pattern

    if patterns := any(map(is_pattern, args.run_ids)):
        views = zip(known, status.views(known), strict=True)
        known = [run for run, view in views if _may(verb)(view)]
        if not known:
            progress(f"no run to {verb} on the login node")
            return DONE
    asks = patterns or verb == "rm"
    if asks and not chosen.agreed([run.run for run in known], verb, yes=args.yes):
        return DONE
    host, waits = known[0].host, getattr(args, "wait", False)
    replaced: dict[str, Sequence[str]] = {"run_ids": [run.run for run in known], "wait": ()}
    replaced |= {"yes": ["--yes"]} if verb == "rm" else {}
    try:
        ended = call.captured(host, call.words(verb, *_options(verb, words, replaced), buffered=True))
    except LinkLost as error:
        raise LinkLost(f"{error}; `torusrun status {known[0].run}` shows whether it was done") from None
    code = shown(ended)
    if verb == "rm" and code == DONE:
        for run in known:
            remote_runs.forget(run.run)
    return _passed(host, "watch", [run.run for run in known]) if waits and code == DONE else code


def _may(verb: str) -> Callable[[View], bool]:
    """Whether a verb may act on a run that a pattern selected."""
    from torusrun.orchestrator.base.states import State

    if verb == "cancel":
        return lambda view: not view.state.over
    return lambda view: view.state.over and (verb == "rm" or view.state is not State.COMPLETED)


def compare(known: Known, other: str) -> int:
    """Compare two runs of a login node there."""
    return _passed(known.host, "reproduce", [known.run, f"--compare={other}"])


def follow(known: Sequence[Known]) -> int:
    """Watch runs of one login node until they are over; the exit code for their outcome."""
    return _passed(known[0].host, "watch", [run.run for run in known])


def _passed(host: LoginHost, verb: str, options: Sequence[str]) -> int:
    """Run a verb there, and show its output as it comes; its exit code. A broken link ends it."""
    from torusrun.orchestrator.base.terminal.remarks import draws, is_quiet
    from torusrun.orchestrator.remote import call

    if verb in ON_TERMINAL and host.by_ssh and draws() and sys.stdin.isatty() and sys.stdout.isatty():
        return call.interact(host, [verb, *options], terminal=True)
    words = call.words(verb, *options, *(["--quiet"] if is_quiet() and "--quiet" not in options else []))
    return call.call(host, words, call.shown(sys.stdout), call.shown(sys.stderr), limits=call.ENDLESS)


def shown(ended: VerbOutput) -> int:
    """Print what a verb printed on a login node; its exit code."""
    from torusrun.orchestrator.remote.call import shown as shows

    shows(sys.stderr)(f"{ended.err}\n".encode() if ended.err else b"")
    shows(sys.stdout)(ended.out)
    return ended.code


def _renamed(verb: str, words: Sequence[str], known: Sequence[Known]) -> list[str]:
    """The words of a verb that reports, with the ids of its runs; the shell of a login node matches no patterns."""
    ids = [run.run for run in known]
    replaced = {OTHER: ids[1:], "run_id": ids[:1]} if verb == "reproduce" else dict.fromkeys(RUNS, ids)
    if verb == "logs":  # the login node cannot see whether the output is a file
        from torusrun.orchestrator.base.terminal import output

        replaced["raw"] = ["--raw"] if output.is_file(sys.stdout) else ["--no-raw"]
        if {"--raw", "--no-raw"} & {*words}:
            del replaced["raw"]
    return _options(verb, words, replaced)


def _options(verb: str, words: Sequence[str], replaced: Mapping[str, Sequence[str]]) -> list[str]:
    """The words of a verb in full, as parsed, with other values for the arguments `replaced`; () leaves one out."""
    from torusrun.orchestrator.cli.verb_list import parser_of

    parser = parser_of(verb)
    for action in parser._actions:
        action.type = None  # the values as they were typed
    given = vars(parser.parse_args(list(words)))
    options: list[str] = []
    for action in parser._actions:
        if action.dest not in given:  # --help
            continue
        name = max(action.option_strings, key=len, default="")
        value = replaced.get(action.dest, given.get(action.dest))
        if action.dest not in replaced and value == action.default:
            continue
        if action.nargs == 0 and action.dest not in replaced:
            options.append(name if value is not False else f"--no-{name[2:]}")
            continue
        values = value if isinstance(value, (list, tuple)) else [value]
        flags = isinstance(action, argparse.BooleanOptionalAction)
        options += [str(each) if flags or not name else f"{name}={each}" for each in values]
    return options
