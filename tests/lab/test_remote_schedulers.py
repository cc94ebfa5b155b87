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
WAITS = "name: waits\nsite: slurm\nnodes: 4\ntime: 20m\ncode: none\ncommand: [sh, -c, exec sleep 600]\n"
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


@pytest.fixture
def sites(away: Away) -> Iterator[None]:
    """Both sites are the user's own on the laptop."""
    own = away.laptop.home / ".config/torusrun/sites"
    for name in ("slurm", "gridengine"):
        away.laptop.put(f".config/torusrun/sites/{name}.yaml", (away.laptop.home / f"{name}.yaml").read_text())
    yield
    for name in ("slurm", "gridengine"):
        (own / f"{name}.yaml").unlink()


def places(laptop: Laptop) -> dict[tuple[str, str], str]:
    """The answer of `where` by site and queue."""
    said = laptop.torusrun("where", "waits.yaml", "--json")
    assert said.returncode == 0, said.stderr
    return {(place["site"], place["queue"]): place["outcome"] for place in json.loads(said.stdout)["places"]}


def view(laptop: Laptop, run_id: str) -> dict:
    said = laptop.torusrun("status", run_id, "--json")
    assert said.returncode == 0, said.stderr
    return json.loads(said.stdout)["runs"][0]


def opens_a_node(laptop: Laptop, run_id: str) -> None:
    """ssh and scp reach the host of rank 6 by an sshd of the user's own there."""
    folder = Path(view(laptop, run_id)["folder"].partition(":")[2])
    until((start := folder / "attempts/1/ranks/0006.start.json").exists, "rank 6 to begin")
    with laptop.on_terminal("shell", run_id, "--rank", "6", "--proxy") as terminal:
        assert terminal.ended() == 0
        laptop.put("ssh.config", terminal.written.replace("\r", ""))
    said = laptop.sh(["ssh", "-F", "ssh.config", "torusrun", "uname -n; cat"], stdin="typed\n")
    assert said.stdout == f"{json.loads(start.read_text())['host']}\ntyped\n", said.stderr
    said = laptop.sh(["scp", "-q", "-F", "ssh.config", "ssh.config", f"torusrun:{folder}/copied"])
    assert said.returncode == 0 and (folder / "copied").read_text() == terminal.written.replace("\r", ""), said.stderr


def test_a_run_goes_to_the_site_that_has_room_and_ssh_opens_its_nodes(away: Away, sites: None) -> None:
    laptop = away.laptop
    laptop.put("waits.yaml", WAITS)
    runs: dict[str, str] = {}
    answer = places(laptop)
    assert answer["slurm", "main"] == answer["gridengine", "all.q"] == "now", answer
    assert answer["slurm", "short"] == answer["slurm", "closed"] == "never", answer
    try:
        for site, queue in ("slurm", "main"), ("gridengine", "all.q"):  # the second run finds no free node at the first
            said = laptop.torusrun("submit", "waits.yaml", "--site", "soonest", timeout_s=400)
            assert said.returncode == 0, said.stderr
            runs[site] = said.stdout.strip()
            assert f"the run goes to {site}, queue {queue}: now" in said.stderr, said.stderr
            until(lambda run=runs[site]: view(laptop, run)["state"] == "RUNNING", "the run to take the nodes")
        for run_id in runs.values():
            opens_a_node(laptop, run_id)
    finally:
        for run_id in runs.values():
            assert laptop.torusrun("cancel", run_id).returncode == 0
    assert {laptop.torusrun("watch", run_id).returncode for run_id in runs.values()} == {1}
