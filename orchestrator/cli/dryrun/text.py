"""A dry run as text: sections with plain headings, every command in shell syntax, the job script last."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from torusrun.orchestrator.base.templates import word
from torusrun.orchestrator.cli.dryrun.look import DryRun
from torusrun.training.counted import counted

SCHEMA = 1


def text(shown: DryRun, answer: str | None = None) -> str:
    """The sections; `answer` is the scheduler's answer about the job, if it was queried."""
    sections = {
        "Submit command": [f"in {shown.attempt.folder}:", command_line(shown.submit)],
        "Answer of the scheduler": (answer or "").splitlines(),
        "Launcher": _launcher(shown),
        "Program of every rank": _program(shown),
        "Command that starts it in the container, on rank 0": [command_line(shown.container or [])],
        f"Environment of rank 0's program, {_further(shown)}": _variables(shown.environment),
        f"Code, copied from {shown.code.source if shown.code else ''}": _code(shown),
        f"Files in the run folder, {shown.plan.folder}": _table(shown.files),
        "Notes": shown.notes,
    }
    title = f"attempt {shown.attempt.number} of run {shown.plan.run_id}"
    parts = [f"Dry run of {title}: nothing is written or submitted, and the run's id will be another."]
    parts += ["\n  ".join([heading, *lines]) for heading, lines in sections.items() if any(lines)]
    return "\n\n".join([*parts, f"Job script, {shown.script_path}\n\n{shown.script}"])


def as_json(shown: DryRun, answer: str | None = None) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "run": shown.plan.run_id,
        "folder": str(shown.plan.folder),
        "submit": shown.submit,
        "answer": answer,
        "hosts": shown.placement.hosts,
        "launcher": {
            "argv": shown.launcher,
            "directory": str(shown.attempt.folder),
            "environment": shown.launcher_environment,
        },
        "program": asdict(shown.program),
        "container": shown.container,
        "environment": shown.environment,
        "code": _code_record(shown),
        "files": shown.files,
        "notes": shown.notes,
        "script": shown.script,
    }


def _launcher(shown: DryRun) -> list[str]:
    hosts, ranks = shown.placement.hosts, shown.plan.ranks_per_node
    where = f"on {len(hosts)} hosts, {hosts[0]} to {hosts[-1]}" if len(hosts) > 1 else f"on {hosts[0]}"
    return [
        f"started by the job in {shown.attempt.folder}; {counted(shown.plan.ranks, 'rank')} {where}, {ranks} on each.",
        "The end of this command starts the wrapper of every rank, which checks its place and then starts the program.",
        command_line(shown.launcher),
        *(["with these variables:"] if shown.launcher_environment else []),
        *_variables(shown.launcher_environment),
    ]


def _program(shown: DryRun) -> list[str]:
    program = shown.program
    stop = signal.Signals(program.stop_signal).name
    return [f"in {program.directory or shown.attempt.folder}, stopped by {stop}:", command_line(program.argv)]


def _further(shown: DryRun) -> str:
    if shown.container:
        return "with only those variables of the job that name ranks, GPUs and communication"
    return "in addition to that of the job"


def _code(shown: DryRun) -> list[str]:
    code = shown.code
    if code is None:
        return []
    how = (
        "the files that git tracks or does not ignore"
        if code.tracked
        else "the whole folder, because git does not list it"
    )
    return [f"{counted(code.files, 'file')}, {counted(code.size_bytes, 'byte')}: {how}", *code.notes]


def _code_record(shown: DryRun) -> dict[str, Any] | None:
    code = shown.code
    if code is None:
        return None
    return {
        "source": str(code.source),
        "files": code.files,
        "bytes": code.size_bytes,
        "notes": code.notes,
    }


def _variables(values: Mapping[str, str]) -> list[str]:
    return [f"{name}={word(value)}" for name, value in values.items()]


def _table(rows: Mapping[str, str]) -> list[str]:
    width = max(map(len, rows))
    return [f"{name:{width}}  {what}" for name, what in rows.items()]


def command_line(argv: Sequence[str]) -> str:
    return " ".join(map(word, argv))
