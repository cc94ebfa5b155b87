"""
The command follows '--'. It runs on every rank, with the environment of torchrun,
in a copy of the working directory. --save writes the run file that `torusrun
submit` takes: it has the same run.

examples:
  torusrun run --ranks-per-node 2 --dry-run -- python examples/programs/ddp.py
  torusrun run -n 4 --gpus 4 --time 2h --site slurm --image pytorch-cpu -- python train.py --lr 0.1
  torusrun run --ranks-per-node 2 --save run.yaml -- python train.py
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from torusrun.orchestrator.base.errors import DONE, UserError
from torusrun.orchestrator.base.terminal.remarks import result
from torusrun.orchestrator.cli.verbs import shared_arguments, submit

if TYPE_CHECKING:
    from torusrun.orchestrator.keys.typed_run import Option, TypedRun

TAKES_A_COMMAND = True
MOST_NAME = 63  # characters
RUNS_A_SCRIPT = re.compile(r"(python[0-9.]*|(ba|da|k|z)?sh)")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "torusrun run [options] -- COMMAND ..."
    shared_arguments.site(parser)
    shared_arguments.settings(parser)
    shared_arguments.keys(parser)
    shared_arguments.key(parser, "--image", metavar="IMAGE", help="the container image of the ranks; default: none")
    shared_arguments.key(parser, "--env", metavar="NAME=VALUE", help="a variable for the ranks; may be repeated")
    code = "folder of your code, which is copied; none: no code"
    shared_arguments.key(parser, "--code", metavar="FOLDER", help=code)
    shared_arguments.key(parser, "--name", metavar="NAME", help="a name for the run")
    parser.add_argument("--save", metavar="FILE", help="write the run file into the new FILE; submit nothing")
    submit.how(parser)
    parser.add_argument("words", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)


def run(args: argparse.Namespace) -> int:
    from torusrun.orchestrator.keys.typed_run import TypedRun

    if not args.command or args.words:
        raise UserError(_without_command(args.words))
    typed = TypedRun(tuple(_options(args)), Path())
    if args.save and args.sweep:
        raise UserError("--save writes one run: leave out --sweep, and write `sweep` into the file")
    if args.save:
        return _save(args, typed)
    return submit.run(argparse.Namespace(**{**vars(args), "file": typed, "site": None}))


def _without_command(words: list[str]) -> str:
    """What is wrong with words that no '--' separates from the options."""
    if words and words[0].endswith((".yaml", ".yml")):
        return f"{words[0]}: a run file is submitted by `torusrun submit {shlex.quote(words[0])}`"
    command = shlex.join(words) or "python train.py"
    return f"write the command after '--', as in `torusrun run --ranks-per-node 2 -- {command}`"


def _options(args: argparse.Namespace) -> list[Option]:
    """The keys that every run of a command has."""
    from torusrun.orchestrator.keys.typed_run import Option

    command = Option(("command",), tuple(args.command), f"-- {shlex.join(args.command)}")
    name = Option(("name",), _name(args.command), "--")
    return [name, Option(("site",), args.site, f"--site {args.site}"), command]


def _name(command: list[str]) -> str:
    """A name for the run of a command: its script's, or its program's. All users see it, so no code is in it."""
    if "-c" in command[1:]:
        command = command[: command.index("-c", 1)]
    named = [word for word in command if not word.startswith("-")] or command
    if RUNS_A_SCRIPT.fullmatch(os.path.basename(named[0])) and len(named) > 1:
        named = named[1:]
    base = re.sub(r"\.(py|sh)$", "", os.path.basename(named[0]))
    name = re.sub(r"[^A-Za-z0-9._-]", "-", base).lstrip("0123456789._-")
    return name[:MOST_NAME] or "run"


def _save(args: argparse.Namespace, typed: TypedRun) -> int:
    """Write the run file. Read in its folder, it has the same run."""
    from torusrun.orchestrator.base import private
    from torusrun.orchestrator.keys.editors import schema_line
    from torusrun.orchestrator.keys.paths import absolute
    from torusrun.orchestrator.run.plan.plan import plan

    if args.dry_run or args.wait or args.ask or args.held:
        raise UserError("--save submits nothing: leave out the options of a submission")
    plan(typed, settings=args.settings, later=bool(args.after or args.after_any))
    file = absolute(args.save)
    text = schema_line("run") + typed.text([*args.settings, *_moved(typed, args.settings, file.parent)])
    try:
        private.write_new(file, text.encode())
    except FileExistsError:
        raise UserError(f"--save {args.save}: this file exists already; name another one, or remove it") from None
    except OSError as error:
        raise UserError(f"--save {args.save}: cannot be written: {error.strerror}") from None
    result(args.save, f"{args.save}: `torusrun submit {shlex.quote(args.save)}` submits it")
    return DONE


def _moved(typed: TypedRun, settings: list[str], folder: Path) -> list[str]:
    """Settings with absolute paths, for a run file in another folder than the working directory."""
    import json

    from torusrun.orchestrator.images import source
    from torusrun.orchestrator.keys.load import load
    from torusrun.orchestrator.keys.paths import absolute
    from torusrun.orchestrator.keys.run import NO_CODE

    here = absolute(typed.folder)
    if folder == here:
        return []
    loaded = load(typed, settings=settings)
    moved = {"site": str(absolute(loaded.site_source))} if "/" in loaded.run.site else {}
    if loaded.run.image:
        moved["image"] = source.beside(loaded.run.image, here)
    if loaded.run.code != NO_CODE:
        moved["code"] = str(absolute(loaded.run.code or ".", here))
    return [f"{key}={json.dumps(value)}" for key, value in moved.items()]
