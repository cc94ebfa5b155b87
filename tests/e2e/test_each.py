"""A role that judges every checkpoint of the main role, on every place: each once, whatever is killed."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import yaml

from tests.e2e.places import Local, Place, ledger, only_on, until
from torusrun.orchestrator.run.folder import metrics
from torusrun.orchestrator.run.folder.run_folder import RunFolder

# Takes 4 steps with a checkpoint after each, and waits after the second one in the first attempt.
TRAINER = """
import os, pathlib, time
kept = pathlib.Path(os.environ["TORUSRUN_CHECKPOINTS"])
done = max((int(path.name[5:]) for path in kept.glob("step-?")), default=0)
released = pathlib.Path("../attempts/1/released")
for step in range(done + 1, 5):
    new = kept / f"step-{step}.tmp"
    new.write_text("x" * step)
    new.rename(kept / f"step-{step}")
    (kept / "latest").write_text(f"step-{step}")
    while step == 2 and os.environ["TORUSRUN_ATTEMPT"] == "1" and not released.exists():
        time.sleep(0.1)
"""
# Judges a checkpoint by its size, and never ends with the second one in the first attempt.
JUDGE = """
import json, os, pathlib, time
path = pathlib.Path(os.environ["TORUSRUN_CHECKPOINT"])
print("judges", path.name, flush=True)
while path.name == "step-2" and os.environ["TORUSRUN_ATTEMPT"] == "1":
    time.sleep(0.1)
with open(os.environ["TORUSRUN_METRICS"], "a") as metrics:
    metrics.write(json.dumps({"accuracy": path.stat().st_size / 4}) + "\\n")
print("judged", path.name, "of", os.environ["TORUSRUN_CHECKPOINT_STEP"], flush=True)
"""
# Never ends with the last checkpoint of the training in the first attempt.
LAST = """
import os, time
step = os.environ["TORUSRUN_CHECKPOINT_STEP"]
print("judges", step, flush=True)
while step == "45" and os.environ["TORUSRUN_ATTEMPT"] == "1":
    time.sleep(0.1)
"""


def submitted(place: Place, **keys: Any) -> Path:
    place.run(["mkdir", "-p", "each"])
    place.put("each/train.py", TRAINER)
    place.put("each/judge.py", JUDGE)
    spec = {
        "name": "each",
        "site": "site.yaml",
        "code": "each",
        "time": "10m",
        "ranks_per_node": 1,
        "command": ["python3", "train.py"],
        "keep_going": {"attempts": 3},
        "roles": {"evaluate": {"each": "checkpoint", "command": ["python3", "judge.py"]}},
        **keys,
    }
    place.put("each.yaml", yaml.safe_dump(spec, sort_keys=False))
    said = place.torusrun("submit", "each.yaml")
    assert said.returncode == 0, said.stderr
    return Path(place.view(said.stdout.split()[0])["folder"])


def said(run: Path, what: str = "judged", rank: int = 1) -> list[str]:
    """The words after `what` in the output of the judges of all attempts."""
    logs = sorted(run.glob(f"attempts/*/logs/rank-{rank:04d}.log"), key=lambda log: int(log.parts[-3]))
    return [word for log in logs for word in re.findall(rf"^{what} (\S+)", log.read_text(), re.MULTILINE)]


def begins_the_second(run: Path) -> dict[str, Any]:
    """The start of the judge that has begun to judge the second checkpoint."""
    until(lambda: said(run, "judges") == ["step-1", "step-2"], "the second checkpoint to be judged")
    return dict(json.loads((run / "attempts/1/ranks/0001.start.json").read_text()))


def test_each_checkpoint_is_judged_once_although_the_judge_is_killed(place: Place) -> None:
    only_on(place, "local", "slurm", "pbs")  # the lab's Grid Engine gives two slots of each host, and no single one
    run = submitted(place)
    judge = begins_the_second(run)
    place.kill(judge["host"], judge["pid"])
    watched = place.watch(run)
    assert watched.returncode == 0, watched.stdout + watched.stderr
    first, *_, last = ledger(run, "ended")
    assert first["cause"] == "killed" and "evaluate rank 0" in first["reason"], first
    assert last["cause"] == "done"
    assert said(run) == ["step-1", "step-2", "step-3", "step-4"]
    rows = [row for row in metrics.read(RunFolder(run).metrics) if row["event"] == "role"]
    assert [(row["step"], row["evaluate/accuracy"]) for row in rows] == [(n, n / 4) for n in (1, 2, 3, 4)]
    assert place.view(run)["of_roles"] == {"evaluate/accuracy": 1.0}
    if not isinstance(place, Local):
        assert judge["host"] != json.loads((run / "attempts/1/ranks/0000.start.json").read_text())["host"]
    until(lambda: not place.processes(run), "all processes of the run to end")


def test_each_checkpoint_is_judged_once_although_the_trainer_is_killed(local: Local) -> None:
    run = submitted(local)
    begins_the_second(run)
    trainer = json.loads((run / "attempts/1/ranks/0000.start.json").read_text())
    local.kill(trainer["host"], trainer["pid"])
    assert local.watch(run).returncode == 0
    first, *_ = ledger(run, "ended")
    assert "main rank 0" in first["reason"], first
    assert said(run) == ["step-1", "step-2", "step-3", "step-4"]


def test_a_cancelled_run_judges_nothing_more(local: Local) -> None:
    run = submitted(local)
    begins_the_second(run)
    assert local.torusrun("cancel", run.name).returncode == 0
    until(lambda: local.view(run)["state"] == "CANCELLED", "the run to be cancelled")
    assert said(run) == ["step-1"]


def test_a_judge_that_is_killed_after_the_training_judges_the_rest_in_the_next_attempt(local: Local) -> None:
    train = {"data": "digits", "epochs": 1, "batch": 32, "checkpoint_every_steps": 20, "checkpoints": {"last": 1}}
    judge = {"each": "checkpoint", "command": ["python3", "-c", LAST], "newest": True}
    run = submitted(local, train=train, command=[], roles={"evaluate": judge})
    until(lambda: "45" in said(run, "judges"), "the last checkpoint to be judged")
    until((run / "attempts/1/ranks/0000.end.json").exists, "the training to end")
    judge = json.loads((run / "attempts/1/ranks/0001.start.json").read_text())
    local.kill(judge["host"], judge["pid"])
    assert local.watch(run).returncode == 0
    first, last = ledger(run, "ended")
    assert "evaluate rank 0" in first["reason"] and last["cause"] == "done", (first, last)
    assert said(run, "judges")[-2:] == ["45", "45"] and len({*said(run, "judges")}) == len(said(run, "judges")) - 1


def test_a_run_of_its_own_judges_the_checkpoints_of_another_run(local: Local) -> None:
    trainer = submitted(local, roles={}, keep_going={"attempts": 1})
    judge = submitted(local, command=["python3", "judge.py"], each=f"checkpoint of {trainer.name}", roles={})
    until(lambda: said(judge, "judges", rank=0) == ["step-1", "step-2"], "the second checkpoint to be judged")
    start = json.loads((judge / "attempts/1/ranks/0000.start.json").read_text())
    local.kill(start["host"], start["pid"])
    until(lambda: (judge / "attempts/2/ranks/0000.start.json").exists(), "the second attempt to judge")
    local.release(trainer)
    assert local.watch(trainer).returncode == 0
    watched = local.watch(judge)
    assert watched.returncode == 0, watched.stdout + watched.stderr
    assert said(judge, rank=0) == ["step-1", "step-2", "step-3", "step-4"]
    rows = [row for row in metrics.read(RunFolder(judge).metrics) if "accuracy" in row]
    assert [(row["step"], row["accuracy"]) for row in rows] == [(n, n / 4) for n in (1, 2, 3, 4)]
