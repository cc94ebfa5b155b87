"""Build an image of the cache from a definition, without root. Of several builds of one image only the first runs.

The runtime is started through the gateway, not through spython's client. The client reads only one of two pipes, so a
build blocks that writes more than 64 KiB to the other. It also sets no folder, no environment and no time limit.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from torusrun.orchestrator.base import private, signals
from torusrun.orchestrator.base.environment import clean_environment
from torusrun.orchestrator.base.errors import SiteError, UserError
from torusrun.orchestrator.base.json_files import write_json
from torusrun.orchestrator.base.whole_lines import tail
from torusrun.orchestrator.images import sif
from torusrun.orchestrator.images.builds import output, running
from torusrun.orchestrator.images.builds.cache import Cache, CachedImage, end_and_remove
from torusrun.orchestrator.images.builds.convert import PULLED, Progress
from torusrun.orchestrator.images.builds.output import EXAMINE, Phases
from torusrun.orchestrator.images.command import Bind
from torusrun.orchestrator.images.definitions import build_secrets, definition_file
from torusrun.orchestrator.images.definitions.build_secrets import Secrets
from torusrun.orchestrator.images.definitions.definition import WHEELHOUSE
from torusrun.orchestrator.images.definitions.inputs import BUILD_ONLY_FOLDER, Inputs, file_checksum
from torusrun.orchestrator.images.definitions.package_lock import PackageLock
from torusrun.orchestrator.images.definitions.requirements import BUILD_ONLY
from torusrun.orchestrator.images.runtime import Runtime, own_environment

LOG_TAIL_BYTES = 1 << 20
TEMPORARY = "torusrun"
FOR_ROOT = ("/usr/local/sbin", "/usr/sbin", "/sbin")

UNFIT = re.compile("[,:'\"]")  # the runtime splits paths at these characters

Examine = Callable[[Path], tuple[dict[str, str], PackageLock | None]]
"""Reads the versions and the packages of a finished image."""


class BuildFailed(SiteError):
    """A build failed. The cache has no new image."""


@dataclass(frozen=True)
class Options:
    """The options of a build, none of which changes the result."""

    mode: Literal["fakeroot", "userns", "plain"] = "fakeroot"
    wheelhouse: Path | None = None
    temporary: Path | None = None  # node-local: fakeroot fails on many shared disks; default: in the cache's folder
    secrets: Mapping[str, str] = field(default_factory=dict)  # name: its place, which is read when the build begins
    secrets_beside: Path = Path()  # the folder of relative paths in `secrets`


def build(
    name: str,
    inputs: Inputs,
    cache: Cache,
    runtime: Callable[[], Runtime],
    options: Options,
    progress: Progress = lambda line: None,
    examine: Examine = lambda image: ({}, None),
) -> CachedImage:
    """The image of these inputs: from the cache, from another running build, or built now.

    `progress` gets a line for each phase; the output is in the log. `runtime` is called only if something must be
    built. A build that is interrupted, or ended by SIGTERM or SIGHUP, leaves no process and nothing but its log.
    Raises BuildFailed with the path of the log; then the cache has nothing new but the log.
    """
    cache.make()
    key = inputs.key
    if entry := cache.sound(key, progress):
        return entry
    with (
        signals.in_order(),
        running.held(cache.lock(key), lambda who: progress(f"waiting for the same build of {who}")),
    ):
        if entry := cache.sound(key, lambda wrong: None):
            return entry
        _clear(cache, key, options)
        progress(f"building {name}; its output: {cache.log(key)}")
        return _build(key, name, inputs, cache, runtime(), options, Phases(progress), examine)


def _build(
    key: str,
    name: str,
    inputs: Inputs,
    cache: Cache,
    runtime: Runtime,
    options: Options,
    phases: Phases,
    examine: Examine,
) -> CachedImage:
    log, work, started_s = cache.log(key), cache.working(key), time.time()
    image = work.with_name(f"{work.name}.sif")
    secrets = build_secrets.read(options.secrets, options.secrets_beside)
    try:
        _check_paths(work, options, secrets)
        source = inputs.lay_out(work)
        if inputs.key != key:
            raise BuildFailed(f"{name} was not built: its files changed while the build began; build it again")
        temporary = _temporary(cache, key, options, work)
        bound = binds(work, inputs, options, secrets)
        if source.endswith(".def") and runtime.has("build --bind"):
            bound += own_tmp(temporary)
        argv = command(runtime, options, image, source, bound)
        environment = build_environment(runtime, temporary, secrets, inputs.built_s)
        code = running.run(argv, environment, inputs.directory or work, log, phases.line, secrets.redactor)
        if code != 0 or not image.is_file():
            printed = b"\n".join(tail(log, LOG_TAIL_BYTES)).decode(errors="replace")
            raise BuildFailed(f"{name} was not built: {output.explain(printed, code)} (log: {log})")
        if inputs.built_s:
            sif.fix_times(image, inputs.built_s)
        phases.begin(EXAMINE)
        versions, packages = examine(image)
        if packages:
            write_json(cache.packages(key), replace(packages, built_s=inputs.built_s or int(started_s)).as_json())
        built = CachedImage(
            key=key,
            path=cache.image(key),
            name=name,
            definition=inputs.definition,
            sha256=file_checksum(image),
            size_bytes=image.stat().st_size,
            built_s=time.time(),
            build_time_s=time.time() - started_s,
            built_by=str(runtime),
            labels={**definition_file.labels(inputs.definition), **inputs.labels},
            versions=versions,
            base=inputs.base_identity,
            source=inputs.source,
        )
        return cache.publish(built, image)
    except OSError as error:
        logged = f" (log: {log})" if log.exists() else ""
        raise BuildFailed(f"{name} was not built: {error.filename or work}: {_why(error)}{logged}") from None
    finally:
        _clear(cache, key, options)


def _why(error: OSError) -> str:
    """The reason of an error; of an error of shutil, which has a reason for each file, the first."""
    if isinstance(error, shutil.Error) and error.args and error.args[0]:
        return str(error.args[0][0][-1])
    return error.strerror or str(error)


def command(runtime: Runtime, options: Options, image: Path, source: str, bound: Sequence[Bind] = ()) -> list[str]:
    """The runtime's command that builds a definition or an image. Raises SiteError if the runtime is too old for it."""
    if source.partition("://")[0] in PULLED:
        return [runtime.command, "pull", str(image), source]
    asked = {"fakeroot": ["--fakeroot"], "userns": ["--userns"], "plain": []}[options.mode]
    if options.mode == "fakeroot" and not runtime.has("--fakeroot"):
        raise SiteError(f"{runtime} cannot build without root; build on another machine and copy the image")
    for bind in bound:
        asked += ["--bind", str(bind)]
    # Without --force the labels of the base stay, if the base is a SIF. The image itself does not exist yet.
    force = ["--force"] if source.endswith(".def") else []
    return [runtime.command, "build", *force, *asked, str(image), source]


def binds(work: Path, inputs: Inputs, options: Options, secrets: Secrets) -> list[Bind]:
    """The read-only binds that only the build sees: a folder, and the binds into it."""
    own = work / BUILD_ONLY_FOLDER
    inner = []
    for path, name in secrets.bound():
        (own / name).touch()
        inner.append((path, f"{BUILD_ONLY}/{name}"))
    if options.wheelhouse:
        inner.append((options.wheelhouse.absolute(), WHEELHOUSE))
    pairs = [(own, BUILD_ONLY), *inner] if inner or inputs.texts or inputs.archives else []
    return [Bind(str(here), inside, read_only=True) for here, inside in pairs]


def own_tmp(temporary: Path) -> list[Bind]:
    """The binds of a new folder below `temporary`: without them a runtime gives builds the host's /tmp and /var/tmp."""
    folder = temporary / "tmp"
    folder.mkdir()
    folder.chmod(0o1777)  # for programs that the build starts as another user; nobody else enters `temporary`
    return [Bind(str(folder), inside) for inside in ("/tmp", "/var/tmp")]


def build_environment(runtime: Runtime, temporary: Path, secrets: Secrets, built_s: int = 0) -> dict[str, str]:
    """The environment of a build.

    PATH ends with the folders of chroot and similar programs, which many users lack, and debootstrap needs.
    """
    kept = own_environment(clean_environment())
    path = os.pathsep.join([kept.get("PATH") or os.defpath, *FOR_ROOT])
    folder = dict.fromkeys((f"{runtime.prefix}_TMPDIR", "TMPDIR"), str(temporary))
    times = {"SOURCE_DATE_EPOCH": str(built_s)} if built_s else {}  # for mksquashfs and debootstrap
    return {**kept, "PATH": path, **times, **secrets.environment(runtime.prefix), **folder}


def _check_paths(work: Path, options: Options, secrets: Secrets) -> None:
    places = {"container.cache": work, "container.temporary": options.temporary, "--wheelhouse": options.wheelhouse}
    places |= {f"the secret file {name}": path for path, name in secrets.bound()}
    for what, place in places.items():
        if place and (bad := UNFIT.search(str(place.absolute()))):
            shown = place.parent if place == work else place
            raise UserError(
                f"{shown}: no image can be built with {bad[0]!r} in a path; choose another folder for {what}"
            )


def _temporary(cache: Cache, key: str, options: Options, work: Path) -> Path:
    """A new folder for the build's own files, under an unpredictable name."""
    above = options.temporary or work
    private.make(above)
    return Path(tempfile.mkdtemp(prefix=_begins(cache, key), dir=above))


def _begins(cache: Cache, key: str) -> str:
    """How the names of these folders begin: caches with locks of their own may share the folder above."""
    of_cache = hashlib.sha256(os.fsencode(os.path.realpath(cache.folder))).hexdigest()
    return f"{TEMPORARY}-{key[:12]}-{of_cache[:8]}-"


def _clear(cache: Cache, key: str, options: Options) -> None:
    """Remove the leftovers of ended builds in the cache and in the temporary folder."""
    cache.clear_leftovers(key)
    if options.temporary:
        for folder in options.temporary.glob(f"{_begins(cache, key)}*"):
            if private.is_mine(folder):
                end_and_remove(folder)
