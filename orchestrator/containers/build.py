"""Build an image of the cache from a definition, without root. Of several builds of one image only the first runs.

The runtime is started through the gateway and not through spython's client: that reads only one of its two pipes
(a build that writes more than 64 KiB to the other blocks), and sets neither folder nor environment nor time limit.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from orchestrator import private, process
from orchestrator.containers import complaints, lint, lock
from orchestrator.containers.cache import Cache, CachedImage, remove_tree
from orchestrator.containers.convert import PULLED
from orchestrator.containers.definition import WHEELHOUSE, Variant, render
from orchestrator.containers.image_file import load
from orchestrator.containers.inputs import Inputs, collect, file_checksum
from orchestrator.containers.mirror import completed
from orchestrator.containers.runtime import Runtime, own_environment, temporary_folder
from orchestrator.errors import SiteError, UserError

COMPRESSIONS = {"gzip": "-comp gzip", "lz4": "-comp lz4", "zstd": "-comp zstd -Xcompression-level 3"}
POLL_S = 0.1
TERMINATE_S = 10.0
LOG_TAIL_BYTES = 1 << 20
TEMPORARY = "torusrun"

Progress = Callable[[str], None]
Examine = Callable[[Path], Mapping[str, str]]


class BuildFailed(SiteError):
    """A build failed; the cache has no new image."""


@dataclass(frozen=True)
class Options:
    """How to build, which does not change what comes out (but for the compression)."""

    mode: Literal["fakeroot", "userns", "plain"] = "fakeroot"
    compression: str = ""  # gzip, lz4 or zstd; '' is what the runtime chooses
    wheelhouse: Path | None = None
    temporary: Path | None = None  # node-local; the cache's folder otherwise
    extra: tuple[str, ...] = ()


def prepare(path: Path, variant: Variant, options: Options) -> tuple[str, Inputs]:
    """(image's name, inputs) of the image file at `path`. Raises UserError for what cannot be built."""
    image_file = completed(load(path))
    if options.wheelhouse and not options.wheelhouse.is_dir():
        raise UserError(f"{options.wheelhouse}: the wheelhouse is not a folder; make one with `pip download`")
    if image_file.python.packages and variant.offline and not options.wheelhouse:
        raise UserError(f"{path}: an offline build needs a wheelhouse for its Python packages; give --wheelhouse")
    variant = replace(variant, wheelhouse=options.wheelhouse is not None)
    definition = render(image_file, variant)
    lint.lint(definition)
    return image_file.name, collect(image_file, definition, path.parent, options.compression)


def build(
    name: str,
    inputs: Inputs,
    cache: Cache,
    runtime: Callable[[], Runtime],
    options: Options,
    progress: Progress = lambda line: None,
    examine: Examine = lambda image: {},
) -> CachedImage:
    """The image of these inputs: from the cache, from another build under way, or built now.

    `runtime` is asked only when something has to be built; `examine` gives the versions found in a finished image.
    Raises BuildFailed with the log's place; the cache then holds nothing new but the log.
    """
    cache.make()
    key = inputs.key
    if entry := cache.sound(key, progress):
        return entry
    with lock.held(cache.lock(key), lambda who: progress(f"waiting for the same build of {who}")):
        if entry := cache.sound(key, lambda wrong: None):
            return entry
        _clear(cache, key, options)
        return _build(key, name, inputs, cache, runtime(), options, progress, examine)


def _build(
    key: str,
    name: str,
    inputs: Inputs,
    cache: Cache,
    runtime: Runtime,
    options: Options,
    progress: Progress,
    examine: Examine,
) -> CachedImage:
    log, work, started_s = cache.log(key), cache.working(key), time.time()
    image = work.with_name(f"{work.name}.sif")
    try:
        argv = command(runtime, options, image, inputs.word(work))
        shell = own_environment(process.clean_environment())
        environment = {**shell, **temporary_folder(runtime, _temporary(key, options, work))}
        code = _run(argv, environment, work, log, progress)
        if code != 0 or not image.is_file():
            raise BuildFailed(f"{name} was not built: {complaints.explain(_tail(log), code)} (log: {log})")
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
            labels=lint.labels(inputs.definition),
            versions=dict(examine(image)),
            base=inputs.base_identity,
            compression=inputs.compression,
        )
        return cache.publish(built, image)
    except OSError as error:
        raise BuildFailed(f"{name} was not built: {error.filename or work}: {error.strerror} (log: {log})") from None
    finally:
        _clear(cache, key, options)


def command(runtime: Runtime, options: Options, image: Path, source: str) -> list[str]:
    """The runtime's words for a build of a definition or an image. Raises SiteError for what it is too old to do."""
    if source.startswith(tuple(f"{transport}://" for transport in PULLED)):
        return [runtime.command, "pull", *options.extra, str(image), source]
    asked = {"fakeroot": ["--fakeroot"], "userns": ["--userns"], "plain": []}[options.mode]
    if options.mode == "fakeroot" and not runtime.has_fakeroot:
        raise SiteError(f"{runtime} cannot build without root; build on another machine and copy the image")
    if options.wheelhouse:
        asked += ["--bind", f"{options.wheelhouse.absolute()}:{WHEELHOUSE}"]
    if options.compression:
        if not runtime.takes_mksquashfs_args:
            raise SiteError(f"{runtime} has no choice of compression; leave it out")
        asked += ["--mksquashfs-args", COMPRESSIONS[options.compression]]
    return [runtime.command, "build", *asked, *options.extra, str(image), source]


def _temporary(key: str, options: Options, work: Path) -> Path:
    """A new folder for the build's own files, under a name that nobody can take before."""
    above = options.temporary or work
    private.make(above)
    return Path(tempfile.mkdtemp(prefix=f"{TEMPORARY}-{key[:12]}-", dir=above))


def _clear(cache: Cache, key: str, options: Options) -> None:
    """Remove the leftovers of ended builds in the cache and in the temporary folder."""
    cache.clear_leftovers(key)
    if options.temporary:
        for folder in options.temporary.glob(f"{TEMPORARY}-{key[:12]}-*"):
            if private.is_mine(folder):
                remove_tree(folder)


def _run(argv: list[str], environment: dict[str, str], work: Path, log: Path, progress: Progress) -> int:
    """Run a build to its end, its output in `log` and line by line in `progress`; its exit code."""
    descriptor = private.open_regular(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    with open(descriptor, "wb") as output, open(log, encoding="utf-8", errors="replace") as reading:
        os.fchmod(descriptor, 0o600)  # an older version left it open to others
        child = process.start(
            argv, environment=environment, output=output, own_group=True, cwd=work, parent_death=signal.SIGTERM
        )
        try:
            while (code := child.poll()) is None:
                _pass_on(reading.readlines(), progress)
                time.sleep(POLL_S)
            _pass_on(reading.readlines(), progress)
            return code
        finally:
            _end(child)


def _pass_on(lines: list[str], progress: Progress) -> None:
    for line in lines:
        if text := line.strip():
            progress(text)


def _end(child: subprocess.Popen[bytes]) -> None:
    """End a build and all it started; a build that ended by itself may have left something too."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(child.pid, number)
            child.wait(TERMINATE_S)
        except (ProcessLookupError, PermissionError):
            return
        except subprocess.TimeoutExpired:
            continue


def _tail(log: Path) -> str:
    with open(log, "rb") as stream:
        stream.seek(max(0, log.stat().st_size - LOG_TAIL_BYTES))
        return stream.read().decode(errors="replace")
