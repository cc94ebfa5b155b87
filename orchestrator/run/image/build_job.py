"""Builds an image in a job of the site's scheduler, for sites that forbid long work on the login node."""

from __future__ import annotations

import shlex
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from torusrun.orchestrator.base import private, process
from torusrun.orchestrator.base.errors import SiteError, TorusrunError, UserError
from torusrun.orchestrator.base.states import State
from torusrun.orchestrator.keys.shared import plain
from torusrun.orchestrator.keys.site import Site
from torusrun.orchestrator.run.folder.records import End
from torusrun.orchestrator.run.image import building
from torusrun.orchestrator.run.image.building import Prepared
from torusrun.orchestrator.run.plan.job_request import of_site
from torusrun.orchestrator.schedulers import answers, client
from torusrun.orchestrator.schedulers.interface import Request
from torusrun.orchestrator.schedulers.script import job_script

LOOK_S = 1.0
POLL_EVERY_S = 10.0


def _build(prepared: Prepared, site: Site, folder: str) -> None:
    """The submitted function: it builds one image and writes its end."""
    try:
        entry = building.build(prepared, site, lambda line: print(line, flush=True))
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
    cache = building.cache(site)
    cache.make()
    folder = cache.folder / "jobs" / f"{prepared.key[:12]}-{time.time_ns()}"
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
        DelayedSubmission(_build, prepared, site, str(folder)).dump(pickles / "image.pkl")
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
        site, 1, site.node.ranks, name=f"build-{prepared.name}", time_s=site.container.build_time_s,
        stdout=folder / "job.out", stderr=folder / "job.err",
    )  # fmt: skip
    cpus = site.node.ranks * site.node.cpus_per_rank
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
                raise SiteError(f"the build's job {job} ended as {status.state.value}: {status.reason} (see {folder})")
        time.sleep(LOOK_S)
    _pass_on(folder / "job.out", passed, say, final=True)
    if end.state is not State.COMPLETED:
        raise SiteError(end.reason)


def _pass_on(output: Path, passed: int, say: Callable[[str], None], *, final: bool = False) -> int:
    """Pass the lines after the first `passed` to `say`, an unfinished one if `final`; the number of lines now."""
    text = output.read_text(encoding="utf-8", errors="replace") if output.exists() else ""
    lines = (text if final else text[: text.rfind("\n") + 1]).splitlines()
    for line in lines[passed:]:
        say(line)
    return len(lines)
