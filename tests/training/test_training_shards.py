"""Checkpoints of states with DTensors: on any number of ranks, complete or absent, and nothing foreign is loaded."""

from __future__ import annotations

import json
import os
import pickle
import re
import resource
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
import torch.distributed as dist
from forked_rank import ForkedRank
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from training_runs import LIMIT_S, ROOT

from tests.waiting import until
from torusrun.training.checkpoint.loading import RefusedCheckpoint
from torusrun.training.checkpoint.manifest import METADATA, STATE, compose, newest_complete, verify
from torusrun.training.progress import Progress
from torusrun.training.script.checkpoints import Checkpoints

STEPS, EVERY = 30, 7
SEED = time.time_ns() % 100_000


def attempt(folder: Path, name: str, ranks: int, **settings: Any) -> tuple[list[int], str]:
    """The exit codes of the ranks, and what they said."""
    known = {"folder": str(folder / "ckpt"), "meet": str(folder / f"{name}.meet"), "weights": str(folder / name)}
    usual = {
        "steps": STEPS,
        "every": EVERY,
        "signals": [],
        "stops_writer": False,
        "tensor_parallel": False,
        "full_disk": None,
    }
    path = folder / f"{name}.json"
    path.write_text(json.dumps({**known, **usual, **settings}))
    environment = {
        **os.environ, "PYTHONPATH": f"{ROOT}/training/entry:{Path(__file__).parent}", "WORLD_SIZE": str(ranks),
    }  # fmt: skip
    logs = [folder / f"{name}.{rank}.log" for rank in range(ranks)]
    started = [
        ForkedRank("shard_ranks", path, log, {**environment, "RANK": str(rank)}) for rank, log in enumerate(logs)
    ]
    try:
        codes = [rank.wait(LIMIT_S) for rank in started]
    finally:
        for rank in started:
            rank.kill()
    return codes, "".join(log.read_text() for log in logs)


@pytest.mark.parametrize(("number", "tensor_parallel"), [(signal.SIGKILL, False), (signal.SIGTERM, True)])
def test_what_ends_on_three_ranks_continues_on_two(
    tmp_path: Path, number: signal.Signals, tensor_parallel: bool
) -> None:
    step = Random(SEED).randrange(2 * EVERY + 1, STEPS - 2)
    how = {"tensor_parallel": tensor_parallel}
    codes, said = attempt(tmp_path, "first", 3, signals=[(1, step, number)], **how)
    stopped = number == signal.SIGTERM
    assert codes == [75] * 3 if stopped else codes[1] == -number, f"seed {SEED}: {codes} {said}"
    codes, again = attempt(tmp_path, "second", 2, **how)
    assert codes == [0, 0], f"seed {SEED}: {again}"
    [begun] = {int(found) for found in re.findall(r"of 2 begins at (\d+)", again)}
    ordered = (step - 1) // EVERY * EVERY  # rank 1 is killed before it takes part in a save of its very step
    assert begun in ({step, step + 1} if stopped else {ordered, ordered - EVERY})
    assert not stopped or set(re.findall(r"stops at (\d+), (\w+)", said)) == {(str(begun), "True")}, said
    (tmp_path / "alone").mkdir()
    codes, alone = attempt(tmp_path / "alone", "only", 1, **how)
    assert codes == [0], alone
    one, other = torch.load(tmp_path / "second"), torch.load(tmp_path / "alone/only")
    for name in one:
        torch.testing.assert_close(one[name], other[name], rtol=1e-4, atol=1e-5, msg=f"seed {SEED}: {name}")
    newest = newest_complete(tmp_path / "ckpt")
    assert newest and newest.step == STEPS
    assert sorted(newest.sha256) == [METADATA, "__0_0.distcp", "__1_0.distcp", STATE]
    kept = sorted(path.name for path in (tmp_path / "ckpt").iterdir() if not path.name.startswith("."))
    assert len(kept) == 3, f"the newest three stay: {kept}"


def test_a_checkpoint_that_one_rank_has_not_written_is_not_complete(tmp_path: Path) -> None:
    killed = [(rank, EVERY + 2, signal.SIGKILL) for rank in range(2)]
    codes, said = attempt(tmp_path, "first", 2, stops_writer=True, signals=killed)
    assert codes == [-9, -9], said
    assert [path.name for path in (tmp_path / "ckpt").glob("step-*")] == []
    shard = f".tmp-step-{EVERY:08d}-*/__0_0.distcp"
    until(lambda: [*(tmp_path / "ckpt").glob(shard)], "the shard of rank 0, whose writer outlives it")
    codes, again = attempt(tmp_path, "second", 1, steps=EVERY)
    assert codes == [0] and "begins at 0" in again
    assert [path.name for path in (tmp_path / "ckpt").iterdir() if path.is_dir()] == [f"step-{EVERY:08d}"]


def test_what_one_rank_cannot_write_no_rank_has_saved(tmp_path: Path) -> None:
    codes, said = attempt(tmp_path, "first", 2, steps=EVERY + 2, full_disk=1)
    assert codes == [1, 1], said
    failed = "could not be written: rank 1: File too large; newest complete checkpoint: none"
    assert said.count(failed) == 2, said
    assert said.count(f"the last checkpoint (step {EVERY + 2}) could not be written") == 2, said
    assert [path.name for path in (tmp_path / "ckpt").iterdir()] == [".lock"]


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    meet = tmp_path_factory.mktemp("group") / "meet"
    dist.init_process_group("gloo", init_method=f"file://{meet}", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


class Script:
    """A sharded model with its optimizer, after one step, and a schedule that is alike on all ranks."""

    def __init__(self, width: int = 4, moved: bool = True) -> None:
        torch.manual_seed(width + moved)
        self.model = nn.Linear(4, width)
        fully_shard(self.model)
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        self.schedule = torch.optim.lr_scheduler.ExponentialLR(self.optimizer, 0.5)
        if moved:
            self.model(torch.ones(2, 4)).sum().backward()
            self.optimizer.step()
            self.schedule.step()

    def weight(self) -> torch.Tensor:
        assert isinstance(self.model.weight, DTensor)
        return self.model.weight.full_tensor().detach().clone()


@pytest.fixture
def saved(tmp_path: Path, group: None) -> Path:
    """A folder with a checkpoint of a Script."""
    checkpoints = Checkpoints(folder=tmp_path, **vars(Script()))
    checkpoints.resume()
    checkpoints.after_step(1)
    checkpoints.close()
    return tmp_path


def resume(folder: Path, **objects: Any) -> int:
    checkpoints = Checkpoints(folder=folder, **objects)
    try:
        return checkpoints.resume()
    finally:
        if checkpoints._writer:
            checkpoints._close(checkpoints._writer)


def test_model_optimizer_and_schedule_continue(saved: Path) -> None:
    script, before = Script(moved=False), Script()
    assert resume(saved, **vars(script)) == 1
    assert torch.equal(script.weight(), before.weight())
    one, other = (each.optimizer.state_dict()["state"][0] for each in (script, before))
    assert int(one["step"]) == 1
    assert torch.equal(one["exp_avg"].full_tensor(), other["exp_avg"].full_tensor())
    assert script.schedule.last_epoch == 1 and script.optimizer.param_groups[0]["lr"] == 5e-4


def test_a_fresh_optimizer_is_not_touched(tmp_path: Path, group: None) -> None:
    script = Script(moved=False)
    assert resume(tmp_path, **vars(script)) == 0
    assert not script.optimizer.state


def test_a_save_before_the_first_step_counts_no_step(tmp_path: Path, group: None) -> None:
    first, again = Script(moved=False), Script(moved=False)
    checkpoints = Checkpoints(folder=tmp_path, **vars(first))
    checkpoints.resume()
    checkpoints.after_step(1)
    checkpoints.close()
    assert not first.optimizer.state and resume(tmp_path, **vars(again)) == 1
    for script in (first, again):
        script.model(torch.ones(2, 4)).sum().backward()
        script.optimizer.step()
    one, other = (script.optimizer.state_dict()["state"][0] for script in (first, again))
    assert int(one["step"]) == int(other["step"]) == 1
    assert torch.equal(first.weight(), again.weight())


def test_a_part_that_names_its_own_state_is_loaded_in_place(tmp_path: Path, group: None) -> None:
    class Average:
        def __init__(self, value: float) -> None:
            self.kept = distribute_tensor(torch.full([6], value), init_device_mesh("cpu", (1,)))

        def state_dict(self) -> dict[str, Any]:
            return {"kept": self.kept, "at": {"number": int(self.kept.full_tensor()[0])}}

        def load_state_dict(self, state: dict[str, Any]) -> None:
            assert state["at"] == {"number": 3}

    checkpoints = Checkpoints(folder=tmp_path, average=Average(3.0))
    checkpoints.resume()
    checkpoints.after_step(1)
    checkpoints.close()
    fresh = Average(0.0)
    assert resume(tmp_path, average=fresh) == 1
    assert fresh.kept.full_tensor().tolist() == [3.0] * 6


class Odd:
    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
        return os.mkdir, ("ran",)


@pytest.mark.parametrize("content", [Odd(), os.getcwd, Path(), {"deep": [Odd()]}])
def test_a_pickle_of_others_runs_no_code(saved: Path, content: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(saved)
    forge(saved / "step-00000001", METADATA, pickle.dumps(content))
    with pytest.raises(RefusedCheckpoint, match=r"its .metadata has a .*; nothing was loaded"):
        resume(saved, **vars(Script()))
    assert not Path("ran").exists()


def test_metadata_that_leads_out_of_the_folder_is_refused(saved: Path) -> None:
    content = (saved / "step-00000001" / METADATA).read_bytes()
    forge(saved / "step-00000001", METADATA, content.replace(b"__0_0.distcp", b"../../passwd"))
    with pytest.raises(RefusedCheckpoint, match=r"it names a file in another folder: '../../passwd'"):
        resume(saved, **vars(Script()))


def test_a_link_in_place_of_a_shard_is_refused(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script, path = Script(), saved / "step-00000001/__0_0.distcp"
    path.rename(saved / "elsewhere")
    checkpoints = Checkpoints(folder=saved, **vars(script))

    def link_after_verifying(given: Any) -> Any:
        (saved / "elsewhere").rename(path)
        found = Checkpoints._newest(checkpoints, given)
        path.rename(saved / "elsewhere")
        path.symlink_to(saved / "elsewhere")
        return found

    monkeypatch.setattr(checkpoints, "_newest", link_after_verifying)
    with pytest.raises(RefusedCheckpoint, match="this is a symbolic link, and is not followed; nothing was loaded"):
        checkpoints.resume()
    assert checkpoints._writer
    checkpoints._close(checkpoints._writer)


def forge(checkpoint: Path, name: str, content: bytes) -> None:
    """Another content, as if it had been saved so."""
    (checkpoint / name).write_bytes(content)
    listing = json.loads((checkpoint / "manifest.json").read_text())
    listing["files"][name] = compose(Progress(1), 0.0, 1, {name: content})["files"][name]
    (checkpoint / "manifest.json").write_text(json.dumps(listing))
    verify(checkpoint)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda: Script(width=5), "Size mismatch"),
        (lambda: vars(Script()) | {"schedule": None}, "it has schedule, and the script has nothing"),
        (lambda: {"model": Script().model, "schedule": Script().schedule}, "it has optimizer"),
        (lambda: {name: part for name, part in vars(Script()).items() if name != "model"}, "name the module"),
        (lambda: {"model": nn.Linear(4, 4)}, "its state is sharded over the ranks, and that of the script is whole"),
    ],
)
def test_a_checkpoint_of_something_else_is_refused(saved: Path, change: Callable[[], Any], says: str) -> None:
    changed = change()
    objects = {name: part for name, part in (changed if isinstance(changed, dict) else vars(changed)).items() if part}
    with pytest.raises(ValueError, match=says):
        resume(saved, **objects)


def test_a_whole_checkpoint_is_not_taken_for_shards(tmp_path: Path, group: None) -> None:
    checkpoints = Checkpoints(folder=tmp_path, model=nn.Linear(4, 4))
    checkpoints.resume()
    checkpoints.after_step(1)
    checkpoints.close()
    with pytest.raises(ValueError, match="its state is whole, and that of the script is sharded over the ranks"):
        resume(tmp_path, model=Script().model)


def test_a_full_disk_costs_checkpoints_and_leaves_nothing(
    tmp_path: Path, group: None, capfd: pytest.CaptureFixture[str]
) -> None:
    limits, script = resource.getrlimit(resource.RLIMIT_FSIZE), Script(width=400)
    checkpoints = Checkpoints(folder=tmp_path, every=2, **vars(script))
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))
    try:
        checkpoints.resume()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    for step in range(1, 5):
        checkpoints.after_step(step)
    with pytest.raises(OSError, match=r"the last checkpoint \(step 4\) could not be written: rank 0: File too large"):
        checkpoints.close()
    said = capfd.readouterr().err
    assert said.count("could not be written: rank 0: File too large; newest complete checkpoint: none") == 2, said
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]


def test_a_part_that_could_not_be_loaded_again_is_refused_before_it_is_saved(tmp_path: Path, group: None) -> None:
    script = Script()
    checkpoints = Checkpoints(folder=tmp_path, every=1, **vars(script))
    checkpoints.resume()
    script.optimizer.param_groups[0]["why"] = Path()
    with pytest.raises(ValueError, match="optimizer: its state_dict.. could not be loaded again: pathlib.Posix"):
        checkpoints.after_step(1)
    script.optimizer.param_groups[0]["why"] = ""
    checkpoints.after_step(2)
    checkpoints.close()
