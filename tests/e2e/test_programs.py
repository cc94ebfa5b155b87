"""Programs that do not know torusrun: started by `command`, killed, and resumed from their own checkpoints."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.lab_places import GridEngine
from tests.e2e.pbs_place import PBS
from tests.e2e.places import ROOT, Local, Place, metrics, until

EXAMPLES = ROOT / "examples" / "programs"
STEPS, EVERY, HELD_AT, RANKS = 50, 10, 40, 2  # the first attempt waits at step HELD_AT until it is struck
OPTIONS = ["--steps", str(STEPS), "--every", str(EVERY)]
STEP = r"step=(?P<step>\d+)( loss=(?P<loss>\S+))?"
TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]
# In place of the pause after each step; in C after it, as a compiler reports a variable that nothing uses.
HOLDS = {
    "time.sleep(args.pause)": f"step == {HELD_AT} and hold.wait()",
    "time.sleep(self.pause)": f"self.global_step == {HELD_AT} and hold.wait()",
    "usleep((useconds_t)(pause_s * 1e6));": f"""usleep((useconds_t)(pause_s * 1e6));
        while (state[0] == {HELD_AT} && getenv("TORUSRUN_ATTEMPT")[0] == '1' && access("../attempts/1/released", F_OK))
            usleep(20000);""",
}
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
BUILD = ["mpicc.openmpi", "-O2", "-Wall", "-Wextra", "-Werror"]


@dataclass(frozen=True)
class Program:
    """One of the examples. `needs` are its Python modules, or a compiler that builds it."""

    name: str
    command: list[str]
    needs: str


def programs(nodes: int) -> list[Program]:
    lightning = ["--devices", str(RANKS // nodes), "--nodes", str(nodes)]
    in_c = Program("mpi", ["./mpi_ring", str(STEPS), str(EVERY), "0", "ckpt"], "mpicc.openmpi")
    in_python = Program("mpi", ["python", "mpi_ring.py", *OPTIONS], "mpi4py")
    return [
        Program("ddp", ["python", "ddp.py", *OPTIONS], "sklearn"),
        Program("lightning", ["python", "lightning_digits.py", *OPTIONS, *lightning], "lightning"),
        Program("accelerate", ["python", "accelerate_digits.py", *OPTIONS, "--cpu"], "accelerate"),
        in_python if nodes == 1 else in_c,
    ]


NAMES = [program.name for program in programs(1)]
# A start of ranks is slow, of Lightning's most of all. On the clusters: MPI, Lightning, which looks for Slurm, and
# torchrun's variables over nodes, which accelerate reads like ddp. TORUSRUN_ALL_PROGRAMS=1 tries all of them in every
# place.
HERE = [name for name in NAMES if name != "lightning"]
TRIED = {"local": HERE, "slurm": ["lightning", "mpi"], "gridengine": ["ddp"], "pbs": NAMES}
if os.environ.get("TORUSRUN_ALL_PROGRAMS"):
    TRIED = dict.fromkeys(TRIED, NAMES)


@dataclass(frozen=True)
class Struck:
    """A run with a first attempt killed at `shown`, from `status`, and a second one that ran to its end."""

    run: Path
    shown: dict[str, Any]
    killed: dict[str, Any]
    ended: dict[str, Any]

    def said(self, attempt: int) -> str:
        return (self.run / f"attempts/{attempt}/logs/rank-0000.log").read_text(errors="replace")


@pytest.fixture(scope="module")
def struck(place: Place, request: pytest.FixtureRequest) -> Iterator[dict[str, Future[Struck]]]:
    """All programs of this session at the same time: they share the place's nodes, and the waiting times."""
    nodes = 1 if isinstance(place, Local) else 2
    place.put_hold("programs")
    for example in (*EXAMPLES.glob("*.py"), EXAMPLES / "mpi_ring.c"):
        place.put(f"programs/{example.name}", held(example))
    items = [item for item in request.session.items if "struck" in getattr(item, "fixturenames", ())]
    asked = {name for name in NAMES if any(f"[{place.cluster}-{name}]" in item.name for item in items)}
    tried = [program for program in programs(nodes) if program.name in asked.intersection(TRIED[place.cluster])]
    there = [program for program in tried if _has(place, program)]
    if "mpicc.openmpi" in [program.needs for program in there]:
        built = place.run([*BUILD, "-o", "programs/mpi_ring", "programs/mpi_ring.c"])
        assert built.returncode == 0, built.stderr
    with ThreadPoolExecutor(len(NAMES)) as pool:
        yield {program.name: pool.submit(strike, place, program, nodes) for program in there}


def held(example: Path) -> str:
    """The text of an example with a hold."""
    text = example.read_text()
    (pause,) = (pause for pause in HOLDS if pause in text)
    return text.replace(pause, HOLDS[pause]).replace("import time\n", "import time\nimport hold\n", 1)


def _has(place: Place, program: Program) -> bool:
    """Whether a program can run there. Our own places get missing packages, as far as this machine allows."""
    if not isinstance(place, PBS):
        return program.name != "mpi" or _mpi_is_here()
    if program.needs == "mpicc.openmpi":
        return place.run(["sh", "-c", f"command -v {program.needs}"]).returncode == 0
    return place.run(["python", "-c", f"import {program.needs}"]).returncode == 0


def _mpi_is_here() -> bool:
    """Whether this machine can build and start programs of Open MPI.

    `mpicc.openmpi` comes with openmpi-bin, `mpi.h` only with libopenmpi-dev: a compiler on PATH proves nothing.
    """
    include = ["-fsyntax-only", "-include", "mpi.h", "-x", "c", os.devnull]
    return all(map(shutil.which, ("mpirun.openmpi", BUILD[0]))) and not subprocess.call(
        [BUILD[0], *include], stderr=subprocess.DEVNULL, timeout=60
    )


def strike(place: Place, program: Program, nodes: int) -> Struck:
    """Submit a program, kill a rank of it once it has a checkpoint, and resume it."""
    run = submit(place, program.name, program.command, nodes, RANKS // nodes, mpi=program.name == "mpi")
    shown = until(lambda: _step_and_checkpoint(place, run), f"a step and a checkpoint of {run.name}")
    victim = json.loads((run / "attempts/1/ranks/0001.start.json").read_text())
    place.kill(victim["host"], victim["pid"])
    place.release(run)
    assert place.watch(run).returncode == 1, "an attempt that lost a rank has failed"
    killed = place.view(run)
    place.succeeds("resume", run.name, "--wait")
    return Struck(run, shown, killed, place.view(run))


def submit(
    place: Place, name: str, command: list[str], nodes: int, ranks: int, *, mpi: bool = False, **more: Any
) -> Path:
    spec = {
        "name": name,
        "site": _site(place, ranks, mpi),
        "nodes": nodes,
        "ranks_per_node": ranks,
        "time": "10m",
        "command": command,
        "code": "programs",
        "checkpoints": {"folder": "ckpt"},
        "metrics": {"pattern": STEP},
        **more,
    }
    place.put(f"{name}.yaml", json.dumps(spec))
    return place._submit(f"{name}.yaml")


def _site(place: Place, ranks: int, mpi: bool) -> str:
    """The place's site, with so few ranks per node that all programs fit at once, and with a launcher for MPI."""
    site = yaml.safe_load(place.site_text())
    kept = {key: value for key, value in site["node"].items() if key == "interface"}
    site["node"] = {**kept, "ranks": ranks}
    if mpi and site["launcher"] == "srun":
        site["launcher_args"] = ["--mpi=pmix"]
    elif mpi and site["launcher"] == "spawn":
        site.update(launcher="mpirun", env=AS_ROOT if os.geteuid() == 0 else {})
    if site["scheduler"] == "gridengine":
        site["ask"] = ["-pe single {ranks}"]
    elif site["scheduler"] == "slurm":
        site["request"] = {"memory": "1500MiB"}
    name = f"site-{ranks}{'-mpi' if mpi else ''}.yaml"
    place.put(name, json.dumps(site))
    return name


def _step_and_checkpoint(place: Place, run: Path) -> dict[str, Any] | None:
    """The view of `status`, once it shows a step of a run that has written a checkpoint."""
    if not any((run / "checkpoints").glob("[!.]*")):
        assert not (run / "attempts/1/end.json").exists(), place.view(run)["reason"]
        return None
    view = place.view(run)
    return view if (view["step"] or 0) >= EVERY else None  # the checkpoint may be there before its step is told


@pytest.fixture(scope="session")
def by_hand(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The last line of each program with one fixed result, started without torusrun and undisturbed."""
    folders = {name: tmp_path_factory.mktemp(name) for name in ("ddp", "accelerate")}
    commands = {p.name: p.command[1:] for p in programs(1) if p.name in folders}
    started = {
        name: subprocess.Popen(
            [*TORCHRUN, "--nproc-per-node", str(RANKS), EXAMPLES / words[0], *words[1:]],
            cwd=folders[name], text=True, stdout=subprocess.PIPE,
        )
        for name, words in commands.items()
    }  # fmt: skip
    said = {name: process.communicate(timeout=600)[0] for name, process in started.items()}
    return {name: _result(text) for name, text in said.items()}


def _ring(steps: int, size: int) -> int:
    """The result of mpi_ring."""
    value = 1
    for _ in range(steps):
        value = (value * 31 + sum(value * (rank + 1) % 1000003 for rank in range(size))) % 1000003
    return value


def _result(said: str) -> str:
    """The text that a program prints after `done step=N`."""
    found = re.search(rf"^done step={STEPS} (.*)$", said, re.MULTILINE)
    assert found, said
    return found[1]


MARKS = {"mpi": pytest.mark.needs("mpicc.openmpi")}


@pytest.mark.parametrize("name", [pytest.param(name, marks=MARKS.get(name, [])) for name in NAMES])
def test_a_killed_program_resumes_from_its_own_checkpoint(
    name: str, place: Place, struck: dict[str, Future[Struck]], request: pytest.FixtureRequest
) -> None:
    if name not in TRIED[place.cluster]:
        pytest.skip("tried in another place")
    if name not in struck:
        pytest.skip(f"what {name} needs is not here")
    found = struck[name].result()
    assert found.shown["state"] == "RUNNING" and found.shown["step"] >= EVERY
    assert found.killed["state"] == "FAILED" and "was killed by SIGKILL" in found.killed["reason"]
    assert found.ended["state"] == "COMPLETED" and found.ended["attempt"] == 2 and found.ended["step"] == STEPS
    resumed = re.search(rf"^rank 0 of {RANKS} resumes at step=(\d+)", found.said(2), re.MULTILINE)
    assert resumed and EVERY <= int(resumed[1]) < STEPS, found.said(2)
    result = _result(found.said(2))
    if name == "mpi":
        assert result == f"value={_ring(STEPS, RANKS)} processes={RANKS}"
    elif name != "lightning" and isinstance(place, Local):
        undisturbed = request.getfixturevalue("by_hand")[name]
        assert result == undisturbed, "it must be what the program computes when nobody kills it"


def test_a_program_is_stopped_its_own_way_and_runs_the_code_that_was_submitted(local: Local) -> None:
    """With the torus in place of DDP's all-reduce, the user's own folder `training`, and an edit after submit."""
    code = local.folder / "programs"
    (code / "training").mkdir(parents=True)
    (code / "training" / "__init__.py").write_text("raise SystemExit('this is not torusrun's')\n")
    local.put_hold("programs")
    text = held(EXAMPLES / "ddp.py").replace("hold.wait()", "hold.wait(lambda: stop)")  # until it is told to stop
    hooked = text.replace(
        "    optimizer = ", "    model.register_comm_hook(None, torusrun.torus_hook())\n    optimizer = ", 1
    )
    (code / "ddp.py").write_text(hooked.replace("import torch\n", "import torch\nimport torusrun\n", 1))
    command = ["python", "ddp.py", "--steps", str(STEPS), "--every", "1000"]
    stop = {"stop": {"signal": "SIGUSR1", "before": "1m"}, "exit_codes": {"later": [75]}, "grid": "2x1"}
    run = submit(local, "stopped", command, 1, RANKS, **stop)
    (code / "ddp.py").write_text("raise SystemExit(9)\n")
    until(lambda: metrics(run, "step"), f"a step of {run.name}", 120)
    assert local.torusrun("cancel", run.name).returncode == 0
    local.watch(run)
    cancelled = local.view(run)
    assert cancelled["state"] == "CANCELLED", cancelled
    local.succeeds("resume", run.name, "--wait")
    said = (run / "attempts/2/logs/rank-0000.log").read_text()
    assert "resumes at step=" in said, f"it must go on from what it saved at SIGUSR1, its only checkpoint: {said}"
    assert f"done step={STEPS}" in said


@pytest.mark.lab
def test_one_torchrun_on_every_node_starts_the_ranks_itself_on_the_cluster(gridengine_lab: Any) -> None:
    place = GridEngine(gridengine_lab)
    place.run(["mkdir", "-p", "programs"])
    place.put("programs/ddp.py", (EXAMPLES / "ddp.py").read_text())
    # The script `torchrun` names its Python by a path that is closed to the lab's user in a clone below /root.
    command = ["python", "-m", "torch.distributed.run", "--nproc-per-node", "2", "ddp.py", "--steps", "20"]
    run = submit(place, "torchrun", command, 2, 1)
    watched = place.watch(run)
    assert watched.returncode == 0, watched.stdout + watched.stderr
    first, second = ((run / f"attempts/1/logs/rank-000{rank}.log").read_text() for rank in range(2))
    assert "done step=20" in first and "done" not in second, "all four workers must have been one training"
