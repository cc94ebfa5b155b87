"""A dry run: the job that `submit` would submit, and the programs of the job and its ranks; as text and as JSON."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torusrun.orchestrator import schedulers
from torusrun.orchestrator.base.environment import jobs_environment, which
from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.base.templates import word
from torusrun.orchestrator.images import pyxis
from torusrun.orchestrator.job.start import launch
from torusrun.orchestrator.job.start.launch_order import LaunchOrder, Rank
from torusrun.orchestrator.job.start.prepare import launch_order
from torusrun.orchestrator.place.placement.mapping import Placement, place
from torusrun.orchestrator.run.attempts import create
from torusrun.orchestrator.run.attempts.submit import proposed
from torusrun.orchestrator.run.code.select import SelectedCode
from torusrun.orchestrator.run.folder import run_folder
from torusrun.orchestrator.run.folder.run_folder import Attempt, RunFolder
from torusrun.orchestrator.run.plan import attempt_plan
from torusrun.orchestrator.run.plan.job_request import without_bad_nodes
from torusrun.orchestrator.run.plan.plan import Plan
from torusrun.orchestrator.run.plan.plan import notes as plan_notes
from torusrun.orchestrator.run.plan.role_plans import of_images
from torusrun.orchestrator.run.plan.roles import with_services
from torusrun.orchestrator.run.program.what_runs import Program
from torusrun.orchestrator.schedulers import client, launchers
from torusrun.orchestrator.schedulers.interface import Request
from torusrun.orchestrator.schedulers.launchers import Launcher
from torusrun.training.counted import counted

if TYPE_CHECKING:  # these import all that reads the state of a run
    from torusrun.orchestrator.cli.dry_run_of_roles import RoleProgram
    from torusrun.orchestrator.run.state.awaited import Awaited

SCHEMA = 1
OPEN_MPI = "mpirun (Open MPI) 4.1"  # assumed if this machine, which is not a node of the job, has no launcher


@dataclass(frozen=True)
class DryRun:
    """The results of a dry run. Words in <> are placeholders for values that only the job knows.

    `order` is the attempt's launch.json; `roles` has the main role first, or the only program of a run without roles.
    `files` lists the files of the run folder, `notes` the facts that are unknown on this machine.
    """

    plan: Plan
    attempt: Attempt
    request: Request
    submit: list[str]
    script: str
    script_path: Path
    placement: Placement
    launcher: list[str]
    launcher_environment: dict[str, str]
    order: LaunchOrder
    roles: Sequence[RoleProgram]
    code: SelectedCode | None
    files: dict[str, str]
    notes: list[str] = field(default_factory=list)

    @property
    def main(self) -> RoleProgram:
        """What rank 0 starts."""
        return self.roles[0]


def dry_run(plan: Plan, after: Sequence[Awaited] = ()) -> DryRun:
    """The dry run of `attempts.submit.first`.

    Raises UserError and SiteError as it does, except for requests that only the scheduler refuses.
    """
    run = RunFolder(plan.folder)
    attempt = run.attempt(1)
    planned = without_bad_nodes(attempt_plan.first(plan))
    asked, script = proposed(plan, after, planned)
    images, code = create.check(plan)
    if not plan.has_grid:
        from torusrun.orchestrator.run.plan.auto_grid import with_expected_grid

        plan = with_expected_grid(plan)
    if images:
        from torusrun.orchestrator.cli import dry_run_in_image as in_image
    hosts = _hosts(plan)
    placement = place(plan.grid, hosts[: plan.run.nodes], plan.ranks_per_node)
    placement = with_services(plan.run, plan.site, placement, hosts)
    starter, notes = _launcher(plan)
    notes += [f"grid {plan.grid} is {plan.chosen.reason}"] if plan.chosen else []
    runtime = in_image.runtime(plan, notes) if images and not pyxis.used(plan.site.container.runtime) else None
    order = launch_order(plan, run, attempt, starter, images, runtime)
    from torusrun.orchestrator.cli.dry_run_of_roles import started

    hidden = {name: f"<{secret}>" for name, secret in plan.secrets.items()}

    def contained(rank: Rank, program: Program) -> list[str] | None:
        return in_image.command(rank, program, hidden) if images else None

    submit = client.of(plan.site).submit_argv(attempt.script, asked)
    if not which(submit[0]):
        notes.insert(0, f"{submit[0]}: not found on this machine, so the job cannot be submitted here")
    return DryRun(
        plan=plan,
        attempt=attempt,
        request=asked,
        submit=submit,
        script=script,
        script_path=attempt.script,
        placement=placement,
        launcher=launch.command(plan, attempt, starter, _jobs_environment(), image=images.get(plan.run.image or "")),
        launcher_environment=launch.environment(plan, attempt, starter, {}),
        order=order,
        roles=[*started(attempt, order, placement, hidden, contained)],
        code=code,
        files=run_folder.files(_kinds(plan)),
        notes=[*notes, *plan_notes(plan), *planned.left_out.lines],
    )


def _launcher(plan: Plan) -> tuple[Launcher, list[str]]:
    """The site's launcher and notes; without a launcher on this machine, Open MPI 4's mpirun is assumed."""
    try:
        launcher = launch.launcher(plan, os.environ)
    except SiteError as error:
        note = f"{error}: the launcher's line is for Open MPI 4; the job checks the version on its nodes"
        return launchers.named(plan.site.launcher, OPEN_MPI), [note]
    if plan.site.launcher in launchers.ASKED and plan.site.software.modules:
        return launcher, [
            f"the job checks the version of {plan.site.launcher} again, after it has loaded the site's modules"
        ]
    return launcher, []


def _hosts(plan: Plan) -> list[str]:
    """The hosts of the job: this machine, or placeholders for hosts that are not known yet."""
    if schedulers.get(plan.site.scheduler).traits.one_machine:
        return [socket.gethostname()]
    return [f"<host {number}>" for number in range(1, plan.all_nodes + 1)]


def _jobs_environment() -> Mapping[str, str]:
    """The variables that launchers pass on: those that a job inherits from this process, and those that it sets."""
    return {**jobs_environment(), **dict.fromkeys(("PYTHONPATH", "TORUSRUN_SCRATCH"), "")}


def _kinds(plan: Plan) -> set[str]:
    kinds = {"command" if plan.run.command else "train"}
    asked = {
        "image": of_images(plan),
        "keep_going": plan.keeps_going,
        "code": plan.code,
        "shells": client.of(plan.site).shell_from_inside,
        "preflight": plan.has_preflight,
        "secrets": plan.secrets,
        "roles": plan.run.roles,
    }
    return kinds | {kind for kind, wanted in asked.items() if wanted}


def text(shown: DryRun, answer: str | None = None) -> str:
    """The sections; `answer` is the scheduler's answer about the job, if it was queried."""
    sections = {
        "Submit command": [f"in {shown.attempt.folder}:", command_line(shown.submit)],
        "Answer of the scheduler": (answer or "").splitlines(),
        "Launcher": _launcher_lines(shown),
        **_roles(shown),
        f"Code, copied from {shown.code.source if shown.code else ''}": _code(shown.code),
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
        "program": asdict(shown.main.program),
        "container": shown.main.container,
        "environment": shown.main.environment,
        "code": _code_record(shown.code),
        "files": shown.files,
        "notes": shown.notes,
        "script": shown.script,
        **({"roles": [asdict(role) for role in shown.roles]} if shown.plan.run.roles else {}),
    }


def _launcher_lines(shown: DryRun) -> list[str]:
    hosts, ranks, plan = shown.placement.hosts, shown.plan.ranks_per_node, shown.plan
    each = f"{ranks} on each" if not plan.run.roles else f"{plan.ranks} of them of the main role"
    where = f"on {len(hosts)} hosts, {hosts[0]} to {hosts[-1]}" if len(hosts) > 1 else f"on {hosts[0]}"
    return [
        f"started by the job in {shown.attempt.folder}; {counted(plan.all_ranks, 'rank')} {where}, {each}.",
        "The end of this command starts the wrapper of every rank, which checks its place and then starts the program.",
        command_line(shown.launcher),
        *(["with these variables:"] if shown.launcher_environment else []),
        *_variables(shown.launcher_environment),
    ]


def _programs(shown: DryRun, started: RoleProgram) -> dict[str, list[str]]:
    """What every rank of a role starts."""
    program, named = started.program, f" of {started.role}" if started.role else ""
    stop = f"in {program.directory or shown.attempt.folder}, stopped by {signal.Signals(program.stop_signal).name}:"
    kept = "with only those variables of the job that name ranks, GPUs and communication"
    further = kept if started.container else "in addition to that of the job"
    return {
        f"Program of every rank{named}": [stop, command_line(program.argv)],
        f"Command that starts it in the container, on rank 0{named}": [command_line(started.container or [])],
        f"Environment of rank 0's program{named}, {further}": _variables(started.environment),
    }


def _roles(shown: DryRun) -> dict[str, list[str]]:
    """The roles in one table, if the run has some, and what each starts."""
    sections = {}
    if shown.plan.run.roles:
        from torusrun.orchestrator.show.role_table import table

        sections["Roles, in the order of their start"] = table(shown.plan).lines()
    for role in shown.roles:
        sections |= _programs(shown, role)
    return sections


def _code(code: SelectedCode | None) -> list[str]:
    if code is None:
        return []
    listed, whole = "the files that git tracks or does not ignore", "the whole folder, because git does not list it"
    how = listed if code.tracked else whole
    return [f"{counted(code.files, 'file')}, {counted(code.size_bytes, 'byte')}: {how}", *code.notes]


def _code_record(code: SelectedCode | None) -> dict[str, Any] | None:
    if code is None:
        return None
    return {"source": str(code.source), "files": code.files, "bytes": code.size_bytes, "notes": code.notes}


def _variables(values: Mapping[str, str]) -> list[str]:
    return [f"{name}={word(value)}" for name, value in values.items()]


def _table(rows: Mapping[str, str]) -> list[str]:
    width = max(map(len, rows))
    return [f"{name:{width}}  {what}" for name, what in rows.items()]


def command_line(argv: Sequence[str]) -> str:
    return " ".join(map(word, argv))
