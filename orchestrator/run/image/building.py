"""Builds images into the site's cache: here, or in a job, for sites that forbid long work on the login node."""

from __future__ import annotations

import os
import shlex
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache as cache_of_calls
from pathlib import Path

from torusrun.orchestrator.base import private, process
from torusrun.orchestrator.base.errors import SiteError, TorusrunError, UserError, explained
from torusrun.orchestrator.base.json_files import write_text
from torusrun.orchestrator.base.states import State
from torusrun.orchestrator.images import pyxis, runtime
from torusrun.orchestrator.images import source as sources
from torusrun.orchestrator.images.builds import build as builds
from torusrun.orchestrator.images.builds import convert
from torusrun.orchestrator.images.builds.cache import SIF, SQUASHFS, Cache, CachedImage
from torusrun.orchestrator.images.checks import image_facts
from torusrun.orchestrator.images.command import ContainerExec
from torusrun.orchestrator.images.definitions import definition_file, image_file, package_lock
from torusrun.orchestrator.images.definitions import prepare as preparing
from torusrun.orchestrator.images.definitions.definition import Variant
from torusrun.orchestrator.images.definitions.inputs import Inputs
from torusrun.orchestrator.images.definitions.package_lock import PackageLock
from torusrun.orchestrator.keys.load import read_text
from torusrun.orchestrator.keys.paths import absolute, expanded
from torusrun.orchestrator.keys.shared import plain
from torusrun.orchestrator.keys.site import Site
from torusrun.orchestrator.run.folder.records import End
from torusrun.orchestrator.run.image.login import login
from torusrun.orchestrator.run.plan.job_request import of_site
from torusrun.orchestrator.schedulers import answers, client
from torusrun.orchestrator.schedulers.interface import Request
from torusrun.orchestrator.schedulers.script import job_script

LOOK_S = 1.0
POLL_EVERY_S = 10.0
LIMIT_S = 3600.0  # of a build's job

_TAG = (
    "{}: a tag can name another image later, and the cache keeps the one that it names now; "
    "name its digest, which `skopeo inspect` shows"
)


def cache(site: Site) -> Cache:
    """The site's folder of built images."""
    return Cache(expanded(site.container.cache))


def form(site: Site) -> str:
    """The ending of the images that the site starts."""
    return SQUASHFS if pyxis.used(site.container.runtime) else SIF


def prepare(
    source: str,
    site: Site,
    *,
    offline: bool = False,
    wheelhouse: Path | None = None,
    lock: Path | None = None,
    context: Path | None = None,
) -> Prepared:
    """The inputs and options of a build for a site: of an image file, or of an image to convert to a SIF.

    `context` is the folder from which a Dockerfile copies, in place of its own. Raises UserError if it cannot be built.
    """
    container = site.container
    options = builds.Options(
        mode=container.build,
        wheelhouse=wheelhouse,
        temporary=Path(container.temporary) if container.temporary else None,
    )
    named = sources.parse(sources.beside(source, Path()))
    if named.kind in ("SIF", "squashfs"):
        raise UserError(
            f"{source}: this is a {named.kind}, so there is nothing to build; a run names it as its 'image'"
        )
    if named.converted and context:
        raise UserError(f"--context: {source} is not a Dockerfile; leave it out")
    if named.converted:
        if lock is not None:
            raise UserError(f"{source}: only an image file can be built from a lock")
        if offline and named.kind == "registry":
            raise UserError(f"{source}: this is in a registry, but --offline uses no network")
        made, options = convert.conversion(named), replace(options, mode="plain", wheelhouse=None)
        advice = (_TAG.format(named.text),) if named.transport == "docker" and "@" not in named.place else ()
        return Prepared(convert.name(named), made, options, advice)
    path = image_file.find(source)
    variant = Variant(host_mpi=bool(container.host_mpi), offline=offline)
    ready = preparing.prepare(path, variant, wheelhouse, lock, context=context)
    options = replace(options, secrets=ready.image_file.secrets, secrets_beside=path.parent.absolute())
    return Prepared(ready.image_file.name, ready.inputs, options, ready.advice)


def definition(source: str, site: Site, context: Path | None = None) -> tuple[str, tuple[str, ...]]:
    """(the definition of the image file at `source`, for a site; notes for the user).

    Raises UserError if the image file is invalid.
    """
    return preparing.rendered(image_file.find(source), Variant(host_mpi=bool(site.container.host_mpi)), context)


def converted(source: str, site: Site, folder: Path, context: Path | None = None) -> tuple[Path, tuple[str, ...]]:
    """(the path of what is written at `folder`, notes for the user).

    A Dockerfile gives a folder with its definition and the files that it copies, a user's definition a Dockerfile.
    Raises UserError for another `source`, or if the path exists.
    """
    path = image_file.find(source)
    loaded = image_file.load(path)
    if not loaded.dockerfile and not loaded.definition:
        raise UserError(
            f"{source}: only a Dockerfile or a definition is converted; `torusrun image render` prints others"
        )
    if os.path.lexists(folder):
        raise UserError(f"{folder}: it exists already; name a new one")
    if loaded.definition:
        place = path.parent / expanded(loaded.definition)
        text, notes = definition_file.dockerfile(read_text(place, "definition"), str(place))
        write_text(folder, text)
        return folder, notes
    inputs = preparing.prepare(path, Variant(host_mpi=bool(site.container.host_mpi)), context=context).inputs
    inputs.check()
    with explained(f"{folder}: cannot be written"):
        return Path(inputs.lay_out(folder)), inputs.notes


def lock_of(source: str, named: str) -> Path:
    """The lock for a build of the image file at `source`: the `named` file, else the lock beside the image file."""
    return absolute(named) if named else image_file.find(source).with_suffix(".lock")


@dataclass(frozen=True)
class Prepared:
    """The inputs and options of a build, whose key finds its image in the cache."""

    name: str
    inputs: Inputs
    options: builds.Options
    advice: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        return self.inputs.key


def build(prepared: Prepared, site: Site, progress: Callable[[str], None]) -> CachedImage:
    """The image, from the cache or built on this machine. Raises BuildFailed with the log's path."""
    if entry := cache(site).sound(prepared.key, progress):
        return entry

    @cache_of_calls
    def required() -> runtime.Runtime:
        named = site.container.runtime
        return login(site).runtime or runtime.required(None if pyxis.used(named) else named)

    def examine(path: Path) -> tuple[dict[str, str], PackageLock | None]:
        container = ContainerExec(required(), str(path))
        asks = image_facts.Inside(container)
        return image_facts.image(path, asks).versions, package_lock.packages(prepared.name, container)

    options = replace(prepared.options, temporary=_here(prepared.options.temporary))
    return builds.build(prepared.name, prepared.inputs, cache(site), required, options, progress, examine)


def _here(folder: Path | None) -> Path | None:
    """A folder with its variables expanded on the machine of the build, which may be in a job."""
    if folder is None:
        return None
    place = os.path.expandvars(expanded(folder))
    if "$" in place:
        raise UserError(f"'container.temporary' {str(folder)!r} names a variable that is not set here: build in a job")
    return Path(place)


def _in_job(prepared: Prepared, site: Site, folder: str) -> None:
    """The submitted function: it builds an image and writes its end."""
    try:
        entry = build(prepared, site, lambda line: print(line, flush=True))
        end = End(State.COMPLETED, str(entry.path))
    except TorusrunError as error:
        end = End(State.FAILED, str(error))
    end.write(Path(folder) / "end.json")
    if end.state is not State.COMPLETED:
        raise SystemExit(f"torusrun: {end.reason}")


def build_in_job(prepared: Prepared, site: Site, python: str, say: Callable[[str], None]) -> None:
    """Submit the build, pass its output to `say`, and wait for its end. Raises SiteError if it fails.

    If the wait is interrupted, the job continues: the next `build` finds the image, or waits for it.
    """
    from submitit.core.utils import DelayedSubmission, JobPaths

    _check_secrets(prepared)
    made = cache(site)
    made.make()
    folder = made.folder / "jobs" / f"{prepared.key[:12]}-{time.time_ns()}"
    pickles = folder / "submitit"
    private.make(pickles)
    request = _request(prepared, site, folder)
    text = job_script(
        site, request, attempt=folder, environment=plain(site.env),
        entry=process.module(python, "submitit.core._submit", pickles),
        title=f"torusrun: build of the image {shlex.quote(prepared.name)}",
    )  # fmt: skip
    private.write_bytes(folder / "job.sh", text.encode())
    with private.umask(private.UMASK):  # that of submitit's file, and of a local job
        DelayedSubmission(_in_job, prepared, site, str(folder)).dump(pickles / "image.pkl")
        job = client.of(site).submit(folder / "job.sh", request)
    JobPaths(pickles, job).move_temporary_file(pickles / "image.pkl", "submitted_pickle")
    say(f"building in job {job}; its output is in {folder}")
    _wait(folder, job, site, say)
    shutil.rmtree(folder, ignore_errors=True)


def _check_secrets(prepared: Prepared) -> None:
    for name, place in prepared.options.secrets.items():
        if place.startswith("env:"):
            raise UserError(
                f"{prepared.name}: 'secrets.{name}' is a variable of this shell, which a job does not have; write it "
                f"into a file that only you can read (chmod 600) and name that: file:PATH"
            )


def _request(prepared: Prepared, site: Site, folder: Path) -> Request:
    asked = of_site(
        site, 1, site.node.ranks, name=f"build-{prepared.name}", time_s=LIMIT_S,
        stdout=folder / "job.out", stderr=folder / "job.err",
    )  # fmt: skip
    cpus = site.node.ranks * site.cpus_per_rank
    return replace(asked, ranks_per_node=1, cpus_per_rank=cpus, gpus_per_node=0, gpu_type=None)


def _wait(folder: Path, job: str, site: Site, say: Callable[[str], None]) -> None:
    passed, next_poll_s = 0, 0.0
    while (end := End.read(folder / "end.json")) is None:
        passed = _pass_on(folder / "job.out", passed, say)
        if time.monotonic() >= next_poll_s:
            status = answers.states(client.of(site), [job], site.poll_interval_s).jobs[job]
            next_poll_s = time.monotonic() + POLL_EVERY_S
            if status.never_starts:
                client.of(site).cancel(job)
                raise SiteError(f"the build's job {job} was taken back: {status.reason}")
            if status.state.over and End.read(folder / "end.json") is None:
                limit = f"; it has {LIMIT_S / 3600:g} h: build with --on login, or elsewhere and copy the SIF"
                why = f"{status.reason} (see {folder}){limit if status.state is State.TIMEOUT else ''}"
                raise SiteError(f"the build's job {job} ended as {status.state.value}: {why}")
        time.sleep(LOOK_S)
    _pass_on(folder / "job.out", passed, say, final=True)
    if end.state is not State.COMPLETED:
        raise SiteError(end.reason)


def _pass_on(output: Path, passed: int, say: Callable[[str], None], *, final: bool = False) -> int:
    """Pass the lines after the first `passed` to `say`, if `final` also an unfinished line; the number of lines now."""
    text = output.read_text(encoding="utf-8", errors="replace") if output.exists() else ""
    lines = (text if final else text[: text.rfind("\n") + 1]).splitlines()
    for line in lines[passed:]:
        say(line)
    return len(lines)
