"""From a laptop: two sites with different schedulers at once, through a real sshd in front of the lab."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import skipped_if_busy
from tests.e2e.places import until
from tests.lab.cluster.folder import give
from tests.lab.gridengine import GridEngineLab
from tests.lab.login import Laptop
from tests.lab.login.laptop import LOGIN_ADDRESS
from tests.lab.login.place import Away, alone

from .slurm import SlurmLab

RUN = "name: {name}\nsite: ../{name}.yaml\nnodes: 2\ncommand: [sh, program.sh]\n"
PROGRAM = """test "$TORUSRUN_ATTEMPT" = 2 && exit 0
i=0; while [ $i -lt 40 ]; do i=$((i+1)); echo line $i; sleep 0.1; done
exec sleep 600
"""


@pytest.fixture(scope="module")
def away(slurm_lab: SlurmLab, gridengine_lab: GridEngineLab) -> Iterator[Away]:
    """The profile of the lab's user has the variables of its schedulers, but not of torusrun."""
    settings, variables = slurm_lab.settings, {**gridengine_lab.user_env, "SLURM_CONF": str(slurm_lab.conf)}
    named = [name for name in variables if name == "PATH" or name.startswith(("SGE_", "SLURM_"))]
    give(settings, ".profile", "".join(f"export {name}={variables[name]!r}\n" for name in named))
    place = Away(settings.root / "away", settings.user, str(slurm_lab.python), slurm_lab.src)
    place.folder.mkdir(mode=0o755)
    with skipped_if_busy(), alone():
        try:
            place.start()
            for name, lab in (("slurm", slurm_lab), ("gridengine", gridengine_lab)):
                own = f"host: {settings.user}@{LOGIN_ADDRESS}\npython: {lab.python}\n"
                place.laptop.put(f"{name}.yaml", own + lab.site_file.read_text())
                place.laptop.put(f"{name}/run.yaml", RUN.format(name=name))
                place.laptop.put(f"{name}/program.sh", PROGRAM)
            yield place
        finally:
            (settings.home / ".profile").unlink(missing_ok=True)
            place.stop()


def views(laptop: Laptop) -> dict[str, dict]:
    said = laptop.torusrun("status", "--json")
    assert said.returncode == 0, said.stderr
    return {view["site"]: view for view in json.loads(said.stdout)["runs"]}


def test_two_sites_of_different_schedulers_at_once(away: Away) -> None:
    laptop = away.laptop
    runs = {}
    for name in ("slurm", "gridengine"):
        said = laptop.torusrun("submit", f"{name}/run.yaml")
        assert said.returncode == 0, said.stderr
        runs[name] = said.stdout.strip()
    followers = {name: laptop.begin("logs", run_id, "--follow") for name, run_id in runs.items()}
    until(lambda: {view["state"] for view in views(laptop).values()} == {"RUNNING"}, "both to run")
    for follower in followers.values():
        assert follower.stdout and follower.stdout.readline() == "line 1\n", "it follows before its link breaks"
    assert {name: view["scheduler"] for name, view in views(laptop).items()} == {name: name for name in runs}
    away.login.drop()
    for name, follower in followers.items():
        assert follower.wait(timeout=120) != 0, f"{name}: the output ends with its link"
    followers = {name: laptop.begin("logs", run_id, "--follow") for name, run_id in runs.items()}
    for view in views(laptop).values():
        log = Path(view["folder"].partition(":")[2]) / "attempts/1/logs/rank-0000.log"
        until(lambda log=log: "line 40\n" in log.read_text(), "all lines")
    for run_id in runs.values():
        assert laptop.torusrun("cancel", run_id).returncode == 0
    for name, follower in followers.items():
        out, err = follower.communicate(timeout=120)
        lines = [line for line in out.splitlines() if line.startswith("line")]
        assert lines == [f"line {number}" for number in range(1, 41)], f"{name}: {out}{err}"
    for name, run_id in runs.items():
        assert laptop.torusrun("watch", run_id).returncode == 1
        said = laptop.torusrun("resume", run_id, "--wait")
        assert said.returncode == 0, said.stdout + said.stderr
        assert laptop.torusrun("collect", run_id, f"out-{name}").returncode == 0
        assert (laptop.home / f"out-{name}/attempts/2/end.json").exists()
    assert {view["state"] for view in views(laptop).values()} == {"COMPLETED"}
