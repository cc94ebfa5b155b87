"""The phases of a build, from the output of Apptainer 1.4.5."""

import pytest

from torusrun.orchestrator.images.builds.output import EXAMINE, Phases, stamp

# (seconds since the start, a line): recorded on this project's machine, most lines left out.
DOCKERFILE = (
    (0, "WARNING: No default remote in use, falling back to default keyserver: https://keys.openpgp.org"),
    (0, "INFO:    Starting build..."),
    (1, "INFO:    Extracting local image..."),
    (4, "INFO:    Copying files/0 to /.torusrun-copied/0/requirements.txt"),
    (4, "INFO:    Copying files/1 to /.torusrun-copied/1/unet"),
    (5, "INFO:    Running post scriptlet"),
    (5, "+ set -e"),
    (5, "+ : 'Dockerfile:6: RUN apt-get update && echo '\"'\"'it'\"'\"''"),
    (5, "+ apt-get update"),
    (65, "+ : Dockerfile:11: RUN pip install --upgrade pip"),
    (65, "+ pip install --upgrade pip"),
    (80, "INFO:    Adding labels"),
    (80, "INFO:    Adding runscript"),
    (80, "INFO:    Creating SIF file..."),
    (80, "INFO:    Non-gzip squashfs compression might not work with some installations"),
    (95, "INFO:    Build complete: /home/me/images/.7a6e.sif"),
)
IMAGE_FILE = (
    (0, "INFO:    Fetching OCI image..."),
    (30, "+ apt-get -o APT::Sandbox::User=root update"),
    (31, "+ DEBIAN_FRONTEND=noninteractive apt-get -o APT::Sandbox::User=root install -y python3"),
    (60, "+ /opt/python/bin/python -m pip install --no-cache-dir torch==2.13.0"),
    (90, "INFO:    Creating SIF file..."),
)


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def said(lines: tuple[tuple[int, str], ...]) -> list[str]:
    clock, printed = Clock(), list[str]()
    phases = Phases(printed.append, clock)
    for clock.now_s, line in lines:
        phases.line(line)
    clock.now_s += 5
    phases.begin(EXAMINE)
    return printed


def test_each_phase_is_one_line() -> None:
    assert said(DOCKERFILE) == [
        "0:01 base", "0:04 files", "0:05 Dockerfile:6: RUN apt-get update && echo 'it'",
        "1:05 Dockerfile:11: RUN pip install --upgrade pip", "1:20 labels and test",
        "1:20 packing", "1:40 examining",
    ]  # fmt: skip


def test_the_phases_of_an_image_file() -> None:
    assert said(IMAGE_FILE)[:4] == ["0:00 base", "0:30 Debian packages", "1:00 Python packages", "1:30 packing"]


@pytest.mark.parametrize(("seconds", "shown"), [(0.4, "0:00"), (59.6, "1:00"), (3600, "1:00:00"), (3599, "59:59")])
def test_times(seconds: float, shown: str) -> None:
    assert stamp(seconds) == shown
