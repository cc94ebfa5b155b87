"""Steps that are replayed as a CUDA graph are those that were launched: alone, and with ranks that share a card."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
import torch

from benchmarks.gpu.one_card import together
from benchmarks.step import learner
from torusrun.training.collectives import device as devices
from torusrun.training.config import Ranks
from torusrun.training.learner import Learner
from torusrun.training.recipe.train import LarsKeys, ModelKeys, OptimizerKeys, Train
from torusrun.training.step.mean_gradient import EAGER_STEPS
from torusrun.training.sync.planner import PROFILED_STEPS

STEPS = PROFILED_STEPS + EAGER_STEPS + 12


def made(device: torch.device, folder: Path, ranks: Ranks, precision: str) -> Learner:
    train = Train(
        model=ModelKeys("resnet-small", {"widths": (8, 16)}), batch=32 * ranks.world, epochs=50, compile=True,
        precision=precision, optimizer=OptimizerKeys("lars", lr=0.5, lars=LarsKeys(trust=0.02)),  # type: ignore[arg-type]
    )  # fmt: skip
    return learner(train, device, folder, ranks)[0]


def trained(rank: int, device: torch.device, world: int, precision: str) -> tuple[list[float], list[float], int]:
    """The losses of a training without and with graphs, and the number of graphs of the second."""
    devices.prepare("cuda", rank, precision)
    found = list[list[float]]()
    for graphs in (False, True):
        with tempfile.TemporaryDirectory() as folder, torch.compiler.set_stance("force_eager"):
            one = made(device, Path(folder), Ranks(rank, world, rank), precision)
            replayed = one.steps._replayed
            assert replayed, "built-in networks are replayed with compile"
            if not graphs:
                one.steps._replayed = None
            losses = []
            for _ in range(STEPS):
                assert not one.step(stop=False)
                losses.append(one.mean_loss)
            one.check_alike()
            count = len(replayed._graphs)
            one.step(stop=rank == world - 1)
            stopping = one.step(stop=False)
            assert stopping, "a request to stop comes through, a step late"
            one.steps.end()
            found.append(losses[1:])
    return found[0], found[1], count


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_replayed_training_learns_as_a_launched_one(cuda: torch.device, precision: str) -> None:
    near(together(1, "cuda", trained, 1, precision))


def test_ranks_replay_their_all_reduces(cuda: torch.device) -> None:
    near(together(2, "cuda", trained, 2, "fp32"))


def near(answers: list[tuple[list[float], list[float], int]]) -> None:
    for launched, replayed, graphs in answers:
        assert graphs == 1
        assert len({*launched}) == len(launched), "every step changes the weights"
        assert launched == pytest.approx(replayed, abs=0.15)
