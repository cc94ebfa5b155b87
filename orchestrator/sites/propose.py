"""The settings of a site, from the scheduler, this machine and the data of a known cluster.

The text of its file has each value with its source, and the queues above them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.images.shared import kind_of, seen_by_others
from torusrun.orchestrator.keys.paths import absolute, expanded
from torusrun.orchestrator.keys.problems import printable
from torusrun.orchestrator.keys.site import Site
from torusrun.orchestrator.schedulers.cluster_facts import ClusterFacts, Queue
from torusrun.orchestrator.schedulers.launchers import ASKED
from torusrun.orchestrator.schedulers.words import clock
from torusrun.orchestrator.sites.choices import Certainty, Choices, Chosen, Setting, surest
from torusrun.orchestrator.sites.detect import SECTIONS, KnownCluster, Reached
from torusrun.orchestrator.sites.machine import MPI_MODULES, RUNTIME_MODULES, Machine, node_settings, preferred
from torusrun.training.counted import counted
from torusrun.training.recipe.key import key_of

RUNS = "~/torusrun/runs"
SCRATCH = "$TORUSRUN_SCRATCH"
CHOOSE = {"queue": ("queue", "queue"), "pe": ("ask", "parallel environment")}  # option: (key, its name)
WIDTH = 120
COLUMN = 36


def propose(reached: Reached, known: KnownCluster | None, machine: Machine, choices: Choices) -> Mapping[str, Setting]:
    """All settings by key; asks the user for unknown values. Raises UserError if they are not given."""
    facts, values = reached.facts, known.values if known else {}
    queue, chosen = _queue(reached, values, choices)
    environment = _environment(facts, queue, choices) if facts.environments and "ask" not in values else None
    kind = queue.kind if queue else None
    every = [
        Setting("scheduler", reached.name, _scheduler(reached)),
        *([Setting("queue", chosen.value, chosen.how)] if chosen and chosen.value else []),
        *_launcher(facts, machine),
        *([environment[0]] if environment else []),
        *node_settings(facts, kind, environment[1] if environment else None, machine, local=reached.one_machine),
        *_account(reached, known, choices),
        *([Setting("topology", dict(facts.topology), facts.commands["topology"])] if facts.topology else []),
        *_folders(reached, choices),
        *_container(reached, machine),
        *(known.settings() if known else ()),
    ]
    settings = surest([*every, *_modules(every, machine)])
    _check_used(choices, settings)
    return settings


def _check_used(choices: Choices, settings: Mapping[str, Setting]) -> None:
    """Raise UserError for an option without effect, as a queue on this machine alone."""
    for option, (key, what) in CHOOSE.items():
        listed_by = settings[key].source if key in settings else ""
        if (given := choices.options.get(option)) and not listed_by.startswith(f"--{option}"):
            raise UserError(f"--{option} {given}: there is no {what} to choose here; leave it out")


def shown(queue: Queue) -> str:
    """A queue in one line: its nodes and limits, or why it is closed."""
    if queue.closed:
        return f"closed: {queue.closed}"
    most = f", at most {queue.nodes} a job" if queue.nodes else ""
    limit = f", at most {clock(queue.time_s)}" if queue.time_s else ", no time limit"
    return f"{counted(queue.all_nodes, 'node')}{most}{limit}{_each(queue)}{' (default)' if queue.is_default else ''}"


def _each(queue: Queue) -> str:
    kind = queue.kind
    if kind is None:
        return ""
    memory = f"{kind.memory_bytes / 2**30:.1f} GiB" if kind.memory_bytes else ""
    gpus = f"{counted(kind.gpus, 'GPU')} {kind.gpu_type or ''}".strip() if kind.gpus else ""
    cpus = counted(kind.cpus, "CPU") if kind.cpus else ""
    parts = ", ".join(part for part in (cpus, memory, gpus) if part)
    return f"; each {parts}" if parts else ""


def _scheduler(reached: Reached) -> str:
    command = reached.facts.commands.get("scheduler")
    return f"{command}: {reached.facts.version}" if command else reached.facts.version


def _queue(reached: Reached, values: Mapping[str, object], choices: Choices) -> tuple[Queue | None, Chosen | None]:
    """The queue, and how it was chosen; (None, None) if the site needs none."""
    queues = {queue.name: queue for queue in reached.facts.queues}
    if reached.one_machine:
        return reached.facts.queues[0], None
    listed_by, known = reached.facts.commands["queues"], values.get("queue")
    if isinstance(known, str) and known in queues and not choices.options.get("queue"):
        return queues[known], Chosen(known, f"{listed_by}: it is there")
    if "ask" in values and "queue" not in values and not choices.options.get("queue"):
        return None, None  # the request names a resource, which decides the queue
    open_queues = {name: shown(queue) for name, queue in queues.items() if not queue.closed}
    if not open_queues:
        why = "; ".join(f"{queue.name}: {queue.closed}" for queue in queues.values())
        raise UserError(f"no queue takes jobs ({why}); try again once one does")
    sensible = max(open_queues, key=lambda name: _preference(queues[name]))
    answer = choices.one_of("queue", "queue", open_queues, sensible, listed_by)
    return queues[answer.value], answer


def _preference(queue: Queue) -> tuple[bool, bool, int]:
    """The order of preference of queues: the scheduler's default, then GPUs, then most nodes."""
    return queue.is_default, bool(queue.kind and queue.kind.gpus), queue.all_nodes


def _environment(facts: ClusterFacts, queue: Queue | None, choices: Choices) -> tuple[Setting, tuple[str, int]] | None:
    """Grid Engine's parallel environment with the most slots on a host, but not more than its CPUs; and its slots."""
    cpus = (queue.kind.cpus if queue and queue.kind else None) or 1024
    fitting = {name: slots for name, slots in facts.environments.items() if not queue or name in queue.environments}
    if not fitting:
        return None
    within = {name: slots for name, slots in fitting.items() if slots <= cpus} or fitting
    sensible = max(within, key=lambda name: within[name])
    described = {name: f"{counted(slots, 'slot')} on each host" for name, slots in fitting.items()}
    listed_by = facts.commands["environments"]
    answer = choices.one_of("parallel environment", "pe", described, sensible, listed_by)
    slots = fitting[answer.value]
    source = f"{answer.how}; {counted(slots, 'slot')} a host"
    return Setting("ask", [f"-pe {answer.value} {{ranks}}"], source), (answer.value, slots)


def _launcher(facts: ClusterFacts, machine: Machine) -> Iterator[Setting]:
    if facts.launcher:
        yield Setting("launcher", facts.launcher, "the scheduler's own")
    elif machine.mpi:
        yield Setting("launcher", "mpirun", f"mpirun --version: {machine.mpi}")
    else:
        yield Setting("launcher", "mpirun", "mpirun is not on PATH here", Certainty.ASSUMED)


def _modules(settings: list[Setting], machine: Machine) -> Iterator[Setting]:
    """The modules for programs that are not on PATH here: MPI, if the launcher is mpirun, and a container runtime."""
    launcher = surest(settings)["launcher"].value
    mpi = preferred(machine.modules, MPI_MODULES) if launcher in ASKED and not machine.mpi else None
    runtime = preferred(machine.modules, RUNTIME_MODULES) if not machine.runtime else None
    if named := [module for module in (mpi, runtime) if module]:
        why = "module -t avail: the default, else the last that is listed"
        yield Setting("environment.modules", named, why, Certainty.ASSUMED)


def _account(reached: Reached, known: KnownCluster | None, choices: Choices) -> Iterator[Setting]:
    facts, listed_by = reached.facts, reached.facts.commands.get("accounts", "")
    if known:
        answer = choices.text("account", "account", known.account)
        yield Setting("account", answer.value, answer.how, Certainty.CHOSEN)
    elif given := choices.options.get("account"):
        yield Setting("account", given, "--account", Certainty.CHOSEN)
    elif facts.needs_account and facts.accounts:
        fitting = dict.fromkeys(facts.accounts, "")
        answer = choices.one_of("account", "account", fitting, facts.accounts[0], listed_by)
        yield Setting("account", answer.value, answer.how)
    elif facts.needs_account:
        answer = choices.text("account", "account", "the scheduler refuses jobs without one")
        yield Setting("account", answer.value, answer.how, Certainty.CHOSEN)


def _folders(reached: Reached, choices: Choices) -> Iterator[Setting]:
    runs = choices.options.get("runs") or RUNS
    kind = kind_of(expanded(runs))
    if choices.options.get("runs"):
        yield Setting("runs", runs if runs.startswith(("~", "$")) else str(absolute(runs)), "--runs", Certainty.CHOSEN)
    elif reached.one_machine:
        yield Setting("runs", runs, "in your home folder")
    elif seen_by_others(kind):
        yield Setting("runs", runs, f"on {kind}, which other machines see")
    else:
        why = f"{kind or 'its file system'} does not show whether the nodes see it; doctor --job checks it"
        yield Setting("runs", runs, why, Certainty.ASSUMED)


def _container(reached: Reached, machine: Machine) -> Iterator[Setting]:
    if machine.runtime:
        yield Setting("container.runtime", Path(machine.runtime.command).name, f"{machine.runtime}, on PATH")
    if not machine.runtime and not preferred(machine.modules, RUNTIME_MODULES):
        return
    if machine.fakeroot:
        yield Setting("container.build", "fakeroot", "/etc/subuid has a range of yours, and newuidmap is there")
    elif machine.user_namespaces:
        yield Setting("container.build", "userns", "unshare --user works; /etc/subuid has no range of yours")
    if not reached.one_machine:
        why = "the job's own folder on a node, else TMPDIR or /tmp"
        yield Setting("stage", SCRATCH, why, Certainty.ASSUMED)


def text(title: str, settings: Mapping[str, Setting], facts: ClusterFacts) -> str:
    """The whole file, in the order of the keys of a site."""
    lines = [f"# {printable(title)}", "# The comment beside each value names its source."]
    if queues := [queue for queue in facts.queues if queue.name]:
        lines.append(f"# Queues, by {facts.commands['queues']}:")
        lines += [printable(f"#   {queue.name:12} {shown(queue)}") for queue in queues]
    for key in _keys(Site):
        if key in SECTIONS:
            lines += _section(key, settings)
        elif key in settings:
            lines.append(_line(key, settings[key]))
    return "\n".join(lines) + "\n"


def _section(name: str, settings: Mapping[str, Setting]) -> list[str]:
    keys = _keys(SECTIONS[name])
    lines = [_line(f"  {key}", settings[f"{name}.{key}"]) for key in keys if f"{name}.{key}" in settings]
    return [f"{name}:", *lines] if lines else []


def _line(key: str, setting: Setting) -> str:
    return f"{key}: {_value(setting.value)}".ljust(COLUMN - 1) + f" # {printable(setting.comment)}"


def _value(value: Any) -> str:
    written = yaml.safe_dump(value, default_flow_style=True, width=10**9)
    return written.removesuffix("...\n").strip()


def _keys(cls: type[Any]) -> list[str]:
    return [key_of(field) for field in dataclasses.fields(cls)]
