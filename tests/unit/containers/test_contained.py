"""A rank's command in its image: values that the runtime cannot carry go through a file of their own."""

import stat
from pathlib import Path

import pytest

from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.images.command import Bind, ContainerExec
from torusrun.orchestrator.images.runtime import Runtime
from torusrun.orchestrator.job.image.contained import contained
from torusrun.orchestrator.run.folder.run_folder import Attempt

SECRET = "$(id) is; a 'secret'"


def kept(version: tuple[int, ...], bind: str = "/a") -> ContainerExec:
    runtime = Runtime("singularity", "singularity", version)
    return ContainerExec(runtime, "/c/x.sif", (Bind(bind),), directory="/")


@pytest.fixture
def attempt(tmp_path: Path) -> Attempt:
    attempt = Attempt(tmp_path / "1")
    attempt.ranks.mkdir(parents=True)
    return attempt


def test_a_value_is_in_a_file_of_the_users_alone_and_in_no_word(attempt: Attempt) -> None:
    argv, environment = contained(kept((3, 8, 7)), ["python3"], {"TOKEN": SECRET, "RANK": "3"}, {}, attempt, 3)
    file = attempt.ranks / "0003.env"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600 and "secret" in file.read_text()
    assert argv[-3:] == ['. "$0" && exec "$@"', str(file), "python3"]
    assert not any("secret" in word for word in argv) and environment == {"SINGULARITYENV_RANK": "3"}


def test_no_file_is_written_that_is_not_needed(attempt: Attempt) -> None:
    argv, _ = contained(kept((4, 1, 5)), ["python3"], {"TOKEN": SECRET}, {}, attempt, 3)
    assert argv[-2:] == ["/c/x.sif", "python3"] and not list(attempt.ranks.iterdir())


def test_a_planted_link_is_replaced_and_not_followed(attempt: Attempt, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("mine")
    (attempt.ranks / "0003.env").symlink_to(precious)
    contained(kept((3, 8, 7)), ["python3"], {"TOKEN": SECRET}, {}, attempt, 3)
    assert precious.read_text() == "mine" and not (attempt.ranks / "0003.env").is_symlink()


def test_what_cannot_be_started_is_one_message(attempt: Attempt) -> None:
    with pytest.raises(SiteError, match="a bind's path must be without"):
        contained(kept((3, 8, 7), "/a:b"), ["python3"], {}, {}, attempt, 0)
    attempt.ranks.rmdir()
    with pytest.raises(SiteError, match=r"0003\.env: cannot be written: No such file or directory"):
        contained(kept((3, 8, 7)), ["python3"], {"TOKEN": SECRET}, {}, attempt, 3)
