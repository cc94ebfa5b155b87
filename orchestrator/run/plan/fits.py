"""Checks between keys of a run and its site, which cannot be checked one key at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from torusrun.orchestrator import schedulers
from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.images import pyxis, source
from torusrun.orchestrator.keys.load import Loaded
from torusrun.orchestrator.keys.main_role import named_images
from torusrun.orchestrator.keys.paths import expanded
from torusrun.orchestrator.keys.problems import Problem, SpecError
from torusrun.orchestrator.keys.run import KeepGoing, RunSpec
from torusrun.orchestrator.keys.shared import Env, Secret, secret
from torusrun.orchestrator.keys.site import Site
from torusrun.orchestrator.place.placement.grid import asked
from torusrun.orchestrator.run.plan import fits_command, fits_roles, missing
from torusrun.orchestrator.schedulers.launchers import family
from torusrun.orchestrator.schedulers.words import not_plain
from torusrun.training.counted import counted
from torusrun.training.files.staged import PATHS, READY
from torusrun.training.recipe import fits as recipe
from torusrun.training.recipe.names import SCHEDULES
from torusrun.training.recipe.reading import ConfigError
from torusrun.training.recipe.train import Train
from torusrun.training.schedule import named

NEVER_SECRET = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH")
MOST_RANKS = 1_000_000  # more would make a plan take minutes
PLACEHOLDERS = {"gpus": ("{gpus}",), "cpus_per_rank": ("{cpus_per_rank}", "{cpus}")}  # by which an `ask` says a key


class Misfit(NamedTuple):
    """A key that does not fit others. `advice` says how to correct it in a file."""

    key: str
    message: str
    advice: str = ""

    def __str__(self) -> str:
        return f"{self.message}; {self.advice}" if self.advice else self.message


def check(loaded: Loaded, *, later: bool = False) -> None:
    """Raise SpecError with all misfits in a run and its site.

    A run that begins `later` follows other runs, which may make its files, or starts in a held allocation.
    """
    try:
        schedulers.get(loaded.site.scheduler)
    except UserError as error:
        raise SpecError([loaded.site_problem("scheduler", f"'scheduler': {error}")]) from None
    run, site, folder = loaded.run, loaded.site, loaded.folder
    wrong = [(misfit.key, str(misfit)) for misfit in (*misfits(run, site), *_gpus(loaded))]
    wrong += fits_command.misfits(run, loaded.marks, folder)
    wrong += missing.misfits(run, site, folder, later=later)
    wrong += fits_command.unconnected_mpi(run, site, folder, later=later)
    problems = [loaded.problem(key, message) for key, message in wrong]
    problems += [loaded.site_problem(misfit.key, str(misfit)) for misfit in _site_misfits(run, site)]
    problems += _request(loaded)
    if problems:
        raise SpecError(problems)


def _gpus(loaded: Loaded) -> Iterator[Misfit]:
    """A misfit if the option --gpus names more than a node of the site has. The key itself counts ranks."""
    ranks, gpus = loaded.run.ranks_per_node, loaded.site.gpus
    if ranks and ranks > gpus and str(loaded.marks.get("ranks_per_node", "")).startswith("--gpus "):
        has = f"a node of the site {loaded.run.site!r} has {gpus or 'no'} GPUs (node.gpus)"
        yield Misfit("ranks_per_node", has, f"for ranks without GPUs of their own, write --ranks-per-node {ranks}")


def misfits(run: RunSpec, site: Site) -> Iterator[Misfit]:
    """Every key of the run that does not fit another key, or the site."""
    yield from _on_nodes(run, site)
    if not run.command:
        yield from _schedule(run.train)
        yield from (Misfit(key, message) for key, message in recipe.complaints(run.train))
    if names_account(site) and not (run.account or site.account):
        yield Misfit("account", "'account' is missing: the site names it in its request", "write the account to charge")
    if run.stop.before_s is not None and run.time_s <= run.stop.before_s:
        yield Misfit("stop.before", f"'stop.before' must be shorter than 'time' ({run.time_s:g}s)")
    elif run.stop.before_s is None and run.time_s <= site.stop_before_s:
        yield Misfit("time", f"'time' must be longer than the site's stop_before ({site.stop_before_s:g}s)")
    yield from _staged(run, site)
    if run.image and run.software.given:
        what = "'environment' has no effect in an image"
        yield Misfit("environment", what, "remove it, or 'image'; an image has its software inside")
    for key, software in (("environment", run.software), ("site's environment", site.software)):
        named = [name for name in ("venv", "conda", "spack") if getattr(software, name)]
        if len(named) > 1:
            yield Misfit("environment", f"'{key}' names {' and '.join(named)}", "write one of them, besides modules")
        if software.root and not (software.conda or software.spack):
            yield Misfit("environment", f"'{key}.root' is where conda or spack is installed", "name one of these, too")
        for name, path in software.relative_paths():
            yield Misfit(
                "environment", f"'{key}.{name}': {path!r} is relative, and a job starts in another folder",
                "begin it with / or ~",
            )  # fmt: skip
    for key, image in named_images(run).items():
        if wrong := source.misfit(image):
            yield Misfit(key, f"{key!r}: {wrong}")
    yield from _not_words({"queue": run.queue, "account": run.account}, site)
    yield from _keep_going(run, site)
    yield from _secrets(run.env)
    yield from (Misfit(key, message) for key, message in fits_roles.misfits(run, site))


def _staged(run: RunSpec, site: Site) -> Iterator[Misfit]:
    """Every misfit of what the run stages."""
    names = [name for name, _ in run.staged]
    for number, name in enumerate(names):
        wrong = f"{name!r} is the name of two of them" if name in names[:number] else ""
        wrong = f"{name!r} is the name of a file of torusrun's own there" if name in (PATHS, READY) else wrong
        if wrong := wrong if name else "a path has no last part":
            yield Misfit(f"stage[{number}]", f"'stage': {wrong}", "write NAME=PATH")
    if names and pyxis.used(site.container.runtime):
        wrong = "'stage': with Pyxis the ranks are in their container before anything is staged"
        yield Misfit("stage", wrong, "bind a folder of the shared disk with 'container.bind' of the site")


def _secrets(env: Env) -> Iterator[Misfit]:
    """Every secret without a source or with two, and every secret that torusrun itself has to read."""
    for name, given in secret(env).items():
        yield from _source(f"env.{name}", given)
        if name in NEVER_SECRET:
            yield Misfit(f"env.{name}", f"'env.{name}' cannot be a secret: torusrun uses it too", "write its value")


def _source(key: str, given: Secret) -> Iterator[Misfit]:
    if bool(given.file) == given.from_shell:
        yield Misfit(key, f"{key!r} must have one source", "write {from: FILE} or {from_shell: true}")
    elif given.file and not given.file.startswith(("/", "~")):
        yield Misfit(key, f"{key!r}: {given.file!r} is not an absolute path", "begin it with / or ~")


def _keep_going(run: RunSpec, site: Site) -> Iterator[Misfit]:
    """Every misfit of a run that keeps going."""
    settings, traits = run.keep_going, schedulers.get(site.scheduler).traits
    if settings.attempts > 1 and site.attempts_by == "array" and not (traits.has_arrays or traits.one_machine):
        wrong = f"'keep_going.attempts': {site.scheduler} has no job arrays"
        yield Misfit("keep_going.attempts", wrong, "write 'attempts_by: dependency' into the site's file")
    if settings.spares and traits.one_machine:
        yield Misfit("keep_going.spares", "'keep_going.spares': a local site is one machine", "leave it out")
    others = settings.attempts > 1 or settings.spares or settings.min_nodes
    if settings.without_progress != KeepGoing().without_progress and not others:
        wrong = "'keep_going.without_progress' has no effect without other keys"
        yield Misfit("keep_going.without_progress", wrong, "add 'attempts', as in {attempts: 20}")
    for what, key in (("memory", "memory_bytes"), ("time", "time_s")):
        factor, most = getattr(settings.grow, what), getattr(settings.grow.most, key) or getattr(site.most, key)
        if factor and not most:
            wrong = f"'keep_going.grow.{what}' has no end"
            yield Misfit(f"keep_going.grow.{what}", wrong, f"write 'keep_going.grow.most.{what}'")
        if factor and what == "memory" and not site.request.memory_of(1):
            wrong = "'keep_going.grow.memory' multiplies 'request.memory', and neither run nor site has it"
            yield Misfit("keep_going.grow.memory", wrong)
    if settings.min_nodes is not None and settings.min_nodes > run.nodes:
        wrong = f"'keep_going.min_nodes' ({settings.min_nodes}) must be at most 'nodes' ({run.nodes})"
        yield Misfit("keep_going.min_nodes", wrong)


def _on_nodes(run: RunSpec, site: Site) -> Iterator[Misfit]:
    """Every misfit with the number of nodes, and of ranks on them."""
    ranks_per_node = run.ranks_per_node or site.node.ranks
    ranks = run.nodes * ranks_per_node
    if schedulers.get(site.scheduler).traits.one_machine and run.nodes != 1:
        yield Misfit("nodes", "'nodes' must be 1 on a local site: it is this machine", "raise ranks_per_node instead")
    elif family(site.launcher).one_node and run.nodes != 1:
        wrong = f"'nodes' must be 1 with the launcher {site.launcher!r}; several nodes take srun or mpirun"
        yield Misfit("nodes", wrong)
    if program := fits_command.ranks_of_its_own(run, ranks_per_node):
        several = f"{ranks_per_node} of it on each node would collide"
        yield Misfit(
            "command", f"'command': {program} starts the ranks of a node itself, and {several}",
            "write 'ranks_per_node: 1', or the script as the command, as in [python, train.py]",
        )  # fmt: skip
    if ranks > MOST_RANKS:
        most = (
            f"{counted(run.nodes, 'node')} of {counted(ranks_per_node, 'rank')} are {ranks}; the most is {MOST_RANKS}"
        )
        yield Misfit("nodes", f"'nodes': {most}")
        return
    try:
        asked(ranks, ranks_per_node, run.grid)
    except ValueError as error:
        yield Misfit("grid", f"'grid': {error} (nodes {run.nodes} x ranks per node {ranks_per_node})")
    if not run.command:
        for key, message, advice in recipe.misfits(run.train, ranks):
            yield Misfit(key, f"{key!r} {message}", advice)


def _schedule(train: Train) -> Iterator[Misfit]:
    """Every error in the options of a schedule. A user's own schedule is checked only by the ranks."""
    if train.schedule.name in SCHEDULES.known:
        try:
            named(train)
        except ConfigError as error:
            yield Misfit("train.schedule.options", str(error))


def _site_misfits(run: RunSpec, site: Site) -> Iterator[Misfit]:
    """Every misfit in keys of the site."""
    yield from _secrets(site.env)
    container, topology = site.container, site.topology
    yield from _not_paths(
        {
            "runs": site.runs,
            "stage": site.stage,
            "topology.file": topology.file if topology else None,
            "container.cache": container.cache,
            "container.temporary": container.temporary,
            "container.host_mpi": container.host_mpi,
        }
    )
    yield from _pyxis(site)
    yield from _not_words(
        {"queue": None if run.queue else site.queue, "account": None if run.account else site.account}, site
    )
    refuses = schedulers.get(site.scheduler).refuses_option
    for key, words in {"ask": site.ask, "submit_args": site.submit_args}.items():
        yield from (Misfit(key, f"'{key}': {word!r} {reason}") for word in words if (reason := refuses(word)))


def _not_paths(paths: Mapping[str, str | None]) -> Iterator[Misfit]:
    for key, text in paths.items():
        try:
            expanded(text or ".")
        except UserError as error:
            yield Misfit(key, f"'{key}': {error}")


def _not_words(words: Mapping[str, str | None], site: Site) -> Iterator[Misfit]:
    """Queues and accounts that the site's scheduler, or the site's own words for it, cannot contain."""
    for key, word in words.items():
        filled_in = key == "account" and names_account(site)
        refuses = not_plain if filled_in else schedulers.get(site.scheduler).refuses
        if word and (reason := refuses(word)):
            yield Misfit(key, f"'{key}': {word!r} {reason}")


def names_account(site: Site) -> bool:
    """Whether the site's own words for the scheduler contain the account."""
    return any("{account}" in text for text in (*site.ask, *site.submit_args))


def _pyxis(site: Site) -> Iterator[Misfit]:
    """Every key of the site without an effect under Pyxis, and a launcher that has no Pyxis."""
    container = site.container
    if not pyxis.used(container.runtime):
        return
    if not family(site.launcher).pyxis:
        how = f"this site starts its ranks by {site.launcher} ({site.scheduler})"
        wrong = f"'container.runtime': Pyxis is a plug-in of Slurm's srun, and {how}"
        yield Misfit("container.runtime", wrong, "name apptainer or singularity, or leave it out")
    if container.gpu in ("nvccli", "rocm"):
        wrong = f"'container.gpu: {container.gpu}' does not work with Pyxis: enroot's own hook brings NVIDIA's GPUs in"
        yield Misfit("container.gpu", wrong, "write nv or none, or leave it out")


def _request(loaded: Loaded) -> Iterator[Problem]:
    """Each part of the request that the scheduler cannot get, at its place in the run's or the site's file."""
    scheduler, asked = schedulers.get(loaded.site.scheduler), loaded.site.request
    for field, key in asked.named():
        value = getattr(asked, field)
        values = [value] if isinstance(value, str) else value if field in ("options", "licenses") else ()
        refuses = scheduler.refuses_option if field == "options" else scheduler.refuses
        reasons = [f"{each!r} {reason}" for each in values if (reason := refuses(each))]
        if reason := _unsaid(loaded, key) or next(iter(reasons), ""):
            is_run = f"request.{key}" in loaded.marks
            yield (loaded.problem if is_run else loaded.site_problem)(f"request.{key}", f"'request.{key}': {reason}")


def _unsaid(loaded: Loaded, key: str) -> str:
    """Why no directive of the scheduler says this key; '' if a directive does."""
    site = loaded.site
    traits = schedulers.get(site.scheduler).traits
    if key not in traits.says:
        has = f"it has {', '.join(sorted(traits.says))}"
        return f"{site.scheduler} has no request for it ({has}); {traits.instead.get(key, 'leave it out')}"
    by_ask = bool(site.ask) and key in traits.asked_by and f"request.{key}" in loaded.marks
    is_part = bool(site.parts) and site.gpus != site.node.gpus
    if not by_ask or is_part or any(word in text for word in PLACEHOLDERS.get(key, ()) for text in site.ask):
        return ""
    if key == "gpus" and site.gpus == site.node.gpus:
        return ""
    words = " or ".join(PLACEHOLDERS.get(key, ()))
    mend = f"write {words} in its place there, or list 'parts' in the site" if words else "write it there"
    return f"the site asks for its nodes in its own words, which do not have it ('ask'); {mend}"
