"""The instance of a node: started by the first rank, stopped by the last, and what killed ranks left is stopped."""

import tempfile
import threading
from pathlib import Path

import pytest

from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.images.command import ContainerExec
from torusrun.orchestrator.images.runtime import Runtime
from torusrun.orchestrator.job.image import mounted as mounts
from torusrun.orchestrator.job.image import node_folder
from torusrun.orchestrator.job.image.mounted import mounted
from torusrun.training.files.trusted import own_folder

RANKS = 8


@pytest.fixture
def container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ContainerExec:
    """With a command that writes down what it was asked for."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    command = tmp_path / "apptainer"
    command.write_text(f'#!/bin/sh\necho "$2 $(eval echo \\${{$#}})" >> {tmp_path}/asked\n')
    command.chmod(0o755)
    return ContainerExec(Runtime(str(command), "apptainer", (1, 4, 5)), "/c/x.sif", instance="torusrun-r-1")


def asked(tmp_path: Path) -> list[str]:
    return (tmp_path / "asked").read_text().splitlines()


def test_many_ranks_start_one_and_the_last_stops_it(container: ContainerExec, tmp_path: Path) -> None:
    all_in, may_leave = threading.Barrier(RANKS + 1), threading.Event()

    def rank() -> None:
        with mounted(container, {}):
            all_in.wait(20)
            may_leave.wait(20)

    threads = [threading.Thread(target=rank) for _ in range(RANKS)]
    for thread in threads:
        thread.start()
    all_in.wait(20)
    assert asked(tmp_path) == ["start torusrun-r-1"]
    may_leave.set()
    for thread in threads:
        thread.join(20)
    assert asked(tmp_path) == ["start torusrun-r-1", "stop torusrun-r-1"]


def test_what_killed_ranks_left_is_stopped_first(container: ContainerExec, tmp_path: Path) -> None:
    folder = own_folder(str(tmp_path))
    node_folder.make(folder)
    for name, content in (("torusrun-r-1", b"1"), ("torusrun-other", b"1"), ("torusrun-ended", b"")):
        (folder / f"{name}{mounts.USED}").write_bytes(content)
    with mounted(container, {}):
        pass
    assert sorted(asked(tmp_path)[:2]) == ["stop torusrun-other", "stop torusrun-r-1"]
    assert asked(tmp_path)[2:] == ["start torusrun-r-1", "stop torusrun-r-1"]


def test_one_that_does_not_start_is_one_message(container: ContainerExec, tmp_path: Path) -> None:
    (tmp_path / "apptainer").write_text("#!/bin/sh\necho FATAL: no user namespaces >&2\nexit 255\n")
    with pytest.raises(SiteError, match="FATAL: no user namespaces; .*'container.mount: rank'"), mounted(container, {}):
        pass
