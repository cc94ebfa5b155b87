"""
EXAMPLE is as in the list. --save writes the run file into the new FILE, and the files that it names, such as its
program, beside it. Nothing is overwritten. --skill prints a file of facts for
agents that are language models: verbs, JSON, exit codes, and a safe order.

examples:
  torusrun examples
  torusrun examples digits
  torusrun examples programs/ddp --save ddp.yaml
  torusrun examples --skill
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
from collections.abc import Mapping
from pathlib import Path

from torusrun.orchestrator.base import private
from torusrun.orchestrator.base.errors import DONE, UserError, explained
from torusrun.orchestrator.base.shipped import examples, shipped
from torusrun.orchestrator.base.terminal.remarks import result
from torusrun.orchestrator.cli.verbs import shared_arguments

SKILL = """---
name: torusrun
description: >-
  Submits, follows, explains and resumes multi-node trainings and other programs on Slurm, PBS, Grid Engine or this
  machine with the command torusrun. Use it for jobs on such a cluster, and for runs that wait, failed or are over.
---
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="EXAMPLE", nargs="?", help="the example to print; default: list all")
    parser.add_argument("--save", metavar="FILE", help="write the example into the new FILE instead of printing it")
    parser.add_argument("--skill", action="store_true", help="print a file of facts for agents instead, as a skill")
    parser.add_argument("--json", action="store_true", help="as JSON")


def run(args: argparse.Namespace) -> int:
    known = examples()
    if args.skill:
        if args.name or args.save:
            raise UserError("--skill prints a file of its own: leave out the example and --save")
        print(json.dumps({"schema": 1, "skill": _skill()}, indent=1) if args.json else _skill(), end="")
        return DONE
    if args.name is None:
        if args.save is not None:
            raise UserError("--save writes one example: write its name before it")
        return _list(args, known)
    if args.name not in known:
        from torusrun.training.recipe.near import did_you_mean

        names = f"known: {', '.join(known)}"
        raise UserError(f"there is no example {args.name!r} ({names}){did_you_mean(args.name, known)}")
    path, text = known[args.name], known[args.name].read_text(encoding="utf-8")
    if args.save is not None:
        _save(path, text, args.save)
    elif args.json:
        print(json.dumps({"schema": 1, "name": args.name, "about": _about(text), "text": text}, indent=1))
    else:
        print(text, end="")
    return DONE


def _skill() -> str:
    """docs/agents.md as a skill: links into the documentation, which is not installed, are plain text."""
    page = (shipped("templates") / "agents.md").read_text(encoding="utf-8")
    return SKILL + re.sub(r"\[([^]]+)\]\([^)]+\)", r"\1", page)


def _list(args: argparse.Namespace, known: Mapping[str, Path]) -> int:
    about = {name: _about(path.read_text(encoding="utf-8")) for name, path in known.items()}
    rows, width = [{"name": name, "about": text} for name, text in about.items()], max(map(len, about))
    lines = (f"{name:{width}}  {text}" for name, text in about.items())
    return shared_arguments.show(args, {"examples": rows}, "\n".join(lines))


def _about(text: str) -> str:
    """The comment at the head of a run file, up to its first sentence; else the command that it runs."""
    if comment := re.match(r"# (.*?)(?:[.:]\s|$)", text, re.MULTILINE):
        return comment[1]
    command = re.search(r"^command: \[(.*)\]", text, re.MULTILINE)
    return f"runs {command[1].replace(',', '')}" if command else ""


def _save(path: Path, text: str, name: str) -> None:
    """Write an example and the files of its folder that it names. Raises UserError if any of them exists."""
    from torusrun.orchestrator.keys.editors import schema_line
    from torusrun.orchestrator.keys.paths import absolute

    file = absolute(name)
    beside = {word for word in re.findall(r"[\w.-]+", text) if word != path.name and (path.parent / word).is_file()}
    new = {file: path, **{file.with_name(word): path.with_name(word) for word in sorted(beside)}}
    if existing := [target for target in new if target.exists() or target.is_symlink()]:
        raise UserError(f"{existing[0]} exists already; name a file in another folder, or remove it")
    made: list[Path] = []
    try:
        for target, source in new.items():
            with explained(f"--save {name}: {target} cannot be written", UserError):
                line = schema_line("run") if target == file else ""
                private.write_new(target, line.encode() + source.read_bytes())
            made.append(target)
    except BaseException:
        for target in made:
            target.unlink()
        raise
    also = f", and {', '.join(sorted(beside))} in its folder" if beside else ""
    result(str(file), f"{name}{also}: `torusrun submit {shlex.quote(name)}` submits it")
