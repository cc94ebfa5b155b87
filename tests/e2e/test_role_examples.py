"""The examples of roles: each is run as it stands, and the GRPO also while its servers and trainers are killed."""

from __future__ import annotations

import json
import re
import shutil
import urllib.request
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.places import LONG, ROOT, Local, Place, ledger, metrics, only_on, until

EXAMPLES = ROOT / "examples"
GRPO = ("--steps", "40", "--every", "5")
# Where the run waits until it is struck: (attempt, step) and the rank of the launch that is killed there. The trainers
# are ranks 0 and 1, rollout is 2. A killed rollout server starts again by itself.
STRIKES = {(1, 10): 2, (1, 20): 1}
HOLD = """
import os, pathlib, time
def wait(step):
    at = (int(os.environ["TORUSRUN_ATTEMPT"]), step)
    while at in {strikes} and not pathlib.Path("../struck-%d-%d" % at).exists():
        pathlib.Path("../waits-%d-%d" % at).touch()
        time.sleep(0.02)
"""


def submitted(place: Place, name: str, *words: str, **changes: str) -> Path:
    """Submit an example with other texts in its files."""
    example = EXAMPLES / f"{name}.yaml"
    place.run(["mkdir", "-p", example.stem])
    for file in example.parent.glob("*.py"):
        place.put(f"{example.stem}/{file.name}", changed(file, changes))
    text = changed(example, changes).replace("site: local", "site: ../site.yaml\ntime: 10m")
    place.put(f"{example.stem}/run.yaml", text)
    said = place.succeeds("submit", f"{example.stem}/run.yaml", *words)
    return Path(place.view(said.stdout.split()[0])["folder"])


def changed(file: Path, changes: dict[str, str]) -> str:
    text = file.read_text()
    for old, new in changes.items():
        text = text.replace(old, new)
    return text


def completed(place: Place, run: Path) -> str:
    """What rank 0 printed in the last attempt, once the run is done."""
    said = place.watch(run)
    assert said.returncode == 0, said.stdout + said.stderr
    until(lambda: not place.processes(run), "all processes of the run to end")
    attempt = ledger(run, "ended")[-1]["attempt"]
    return (run / f"attempts/{attempt}/logs/rank-0000.log").read_text()


def waits(run: Path, attempt: int, step: int) -> bool:
    """Whether the run waits to be struck there."""
    assert len(ledger(run, "ended")) < attempt, ledger(run, "ended")
    return (run / f"waits-{attempt}-{step}").exists()


def record(run: Path, attempt: int, rank: int) -> dict[str, Any]:
    return dict(json.loads((run / f"attempts/{attempt}/ranks/{rank:04d}.start.json").read_text()))


def test_a_client_evaluates_the_model_of_a_server(local: Local) -> None:
    run = submitted(local, "roles/model_server")
    assert "done accuracy=1.00" in completed(local, run)


def test_the_grpo_learns_the_same_bits_whoever_is_killed(place: Place) -> None:
    only_on(place, "local", "slurm")
    short = {'"{judge.url}"]': '"{judge.url}", ' + ", ".join(f'"{word}"' for word in GRPO) + "]"}
    place.run(["mkdir", "-p", "grpo"])
    place.put("grpo/strikes.py", HOLD.format(strikes=list(STRIKES)))
    held = {
        "import torusrun\n": "import strikes\nimport torusrun\n",
        "time.sleep(args.pause)": "strikes.wait(step + 1)",
    }
    run = submitted(place, "roles/grpo", **short, **held)
    undisturbed = submitted(place, "roles/grpo", **short)
    for (attempt, step), rank in STRIKES.items():
        until(partial(waits, run, attempt, step), f"{run.name} to wait at step {step}")
        victim = record(run, attempt, rank)
        place.kill(victim["host"], victim["pid"])
        place.run(["touch", f"{run}/struck-{attempt}-{step}"])
    ended, expected = completed(place, run), completed(place, undisturbed)
    reasons, undisturbed_reasons = ([event["reason"] for event in ledger(each, "ended")] for each in (run, undisturbed))
    assert len(undisturbed_reasons) == 1, undisturbed_reasons
    assert len(reasons) == 2 and "trainer rank 1" in reasons[0], reasons
    before, after = (re.search(rf"accuracy {word}: (\S+)", expected) for word in ("before", "after"))
    assert before and after and float(before[1]) < 0.1 and float(after[1]) > 0.95, expected
    (done,) = re.findall(r"^done .*", expected, re.MULTILINE)
    assert done in ended, f"the struck run must end with these bits: {done}\n{ended}"


def test_each_checkpoint_of_a_training_is_evaluated(local: Local) -> None:
    run = submitted(local, "checkpoints/evaluated", "--set", "ranks_per_node=1", **{'"100"]': '"30", --steps, "60"]'})
    completed(local, run)
    rows = {row["step"]: row["evaluate/accuracy"] for row in metrics(run, "role")}
    assert rows.keys() == {30, 60} and 0.5 < rows[30] < rows[60], rows


@pytest.mark.skipif(find_spec("tensorboard") is None, reason="TensorBoard is not installed")
def test_tensorboard_shows_a_training_at_work(local: Local) -> None:
    run = submitted(local, "roles/tensorboard", *LONG)
    until(lambda: metrics(run, "step"), f"a step of {run.name}", 120)
    port = json.loads((run / "attempts/1/roles/board.json").read_text())["port"]

    def tags() -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/data/plugin/scalars/tags", timeout=30) as answer:
            return str(answer.read())

    until(lambda: "step/loss" in tags(), "TensorBoard to show the loss")
    assert local.torusrun("cancel", run.name).returncode == 0
    until(lambda: not local.processes(run), "all processes of the run to end")


@pytest.mark.skipif(shutil.which("ray") is None, reason="Ray is not installed")
@pytest.mark.parametrize(("name", "nodes"), [("ray", 2), ("ray_symmetric", 1)])
def test_ray_runs_tasks_on_all_its_nodes(name: str, nodes: int, local: Local) -> None:
    run = submitted(local, f"roles/{name}")
    assert f"done sum=2470 nodes={nodes} " in completed(local, run)
