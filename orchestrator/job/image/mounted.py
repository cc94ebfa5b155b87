"""Mounts an image once per node, as an instance of the runtime, which the ranks of the node join.

FOLDER/torusrun-UID/NAME.used    locked (shared) by every rank in the instance; empty if no instance runs
FOLDER/torusrun-UID/NAME.turn    locked by the rank that starts or stops the instance

Without an instance, each rank has its own mount, with its own process that unpacks and its own pages in memory.
The last rank of a node stops the instance. If all its ranks were killed, the next rank that starts one here stops it.
Apptainer's --sharens is not used. It groups the ranks of a node by their parent process, but here each rank has its own
wrapper as parent. It also fails if the first rank ends before another begins.
"""

from __future__ import annotations

import contextlib
import os
import socket
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from torusrun.orchestrator.base import process
from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.images.command import ContainerExec, start_instance, stop_instance
from torusrun.orchestrator.job.image import node_folder
from torusrun.training.files import lock
from torusrun.training.files.trusted import own_folder

STARTING_S = 120.0
STOPPING_S = 30.0
USED, TURN = ".used", ".turn"
STARTED = b"1"  # in NAME.used while the instance runs


@contextmanager
def mounted(container: ContainerExec, inherited: Mapping[str, str]) -> Iterator[None]:
    """Join the instance of `container` on this node, as one of its ranks. Raises SiteError if it cannot start."""
    folder = own_folder(tempfile.gettempdir())
    node_folder.make(folder, "container.mount")
    name = container.instance
    with contextlib.ExitStack() as held:
        try:
            with lock.held(folder / f"{name}{TURN}"):
                used = lock.opened(folder / f"{name}{USED}")
                held.callback(os.close, used)
                if lock.take(used, wait_s=0.0):
                    _stop_left(container, folder)
                    _start(container, inherited)
                    os.pwrite(used, STARTED, 0)
                lock.take(used, shared=True)
        except OSError as error:
            raise SiteError(f"{error.filename or folder}: the image cannot be mounted: {error.strerror}") from None
        try:
            yield
        finally:
            with contextlib.suppress(OSError), lock.held(folder / f"{name}{TURN}"):
                lock.release(used)
                if lock.take(used, wait_s=0.0):
                    _stop(container, name)
                    os.ftruncate(used, 0)


def _start(container: ContainerExec, inherited: Mapping[str, str]) -> None:
    try:
        launch = start_instance(container, inherited)
    except ValueError as error:
        raise SiteError(f"{container.image}: cannot be mounted: {error}; correct 'container' of the site") from None
    done = process.run(launch.argv, timeout_s=STARTING_S, environment=launch.environment)
    if done.exit_code:
        said = (done.stderr.strip() or "it said nothing").splitlines()[-1]
        raise SiteError(
            f"{container.image}: cannot be mounted on {socket.gethostname()}: {said}; if it can be with "
            f"'container.mount: rank', set that in the site"
        )


def _stop(container: ContainerExec, name: str) -> None:
    with contextlib.suppress(SiteError):
        process.run(stop_instance(container, name), timeout_s=STOPPING_S)


def _stop_left(container: ContainerExec, folder: Path) -> None:
    """Stop the instances on this node that have no rank: those of killed ranks."""
    for path in folder.glob(f"torusrun-*{USED}"):
        if path.stem == container.instance:
            if path.stat().st_size:
                _stop(container, path.stem)
        elif path.stat().st_size:
            with (
                contextlib.suppress(OSError),
                lock.held(path.with_suffix(TURN), wait_s=0.0) as turn,
                lock.held(path, wait_s=0.0) as left,
            ):
                if turn and left:  # else ranks of another run are in it, or are joining it
                    _stop(container, path.stem)
                    os.truncate(path, 0)
