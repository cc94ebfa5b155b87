"""The benchmarks of `make gpu`, small on the CPU: so their first run on a card does not fail on a mistake in them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from benchmarks import lars
from benchmarks.gpu import __main__ as gpu
from benchmarks.gpu import card, overlap, start, throughput
from benchmarks.gpu.one_card import together
from benchmarks.large_batch.__main__ import train_all
from benchmarks.large_batch.results import missing, read
from benchmarks.large_batch.study import CIFAR10


@pytest.fixture(autouse=True)
def same_settings() -> Iterator[None]:
    threads, determinism = torch.get_num_threads(), torch.get_deterministic_debug_mode()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
    torch.set_deterministic_debug_mode(determinism)


def test_lars_by_the_clock_of_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lars, "WARM_UP", 1)
    monkeypatch.setattr(lars, "FORMS", {name: lars.FORMS[name] for name in ("fused", "memcpy")})
    assert all(ms > 0 for ms in lars.on_device(1, "cpu").values())


@pytest.mark.parametrize(("words", "forms"), [((), throughput.FORMS), (("--choices",), throughput.CHOICES)])
def test_images_per_second(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], forms: tuple[throughput.Form, ...]
) -> None:
    throughput.main(["--device", "cpu", "--small", "--steps", "1", *words])
    shown = capsys.readouterr().out
    for form in forms:
        assert (f"\n{form.name}  " in shown) == (form.name in throughput.SMALL), shown


def test_the_parts_of_a_start(capsys: pytest.CaptureFixture[str]) -> None:
    start.main(small=True, forms={"eager": False})
    met_s, first_s, last_s = map(float, capsys.readouterr().out.splitlines()[-1].split()[-3:])
    assert 0 < met_s <= first_s <= last_s


def test_overlap(capsys: pytest.CaptureFixture[str]) -> None:
    overlap.main(["--device", "cpu", "--small", "--ranks", "2", "--batch", "2", "--steps", "1"])
    shown = capsys.readouterr().out
    assert all(name in shown for name in overlap.SMALL) and "2 ranks on a CPU" in shown


def test_cifar10_in_small(tmp_path: Path) -> None:
    results = tmp_path / "results.jsonl"
    small = replace(
        CIFAR10, data="digits", size=8, epochs=1, warm_up=0.2, batches=(512,), widths=(4,), blocks=1, precision="fp32"
    )
    train_all(small, results, torch.device("cpu"))
    assert not missing(small, scores := read(results))
    assert {case.cell.side for case in scores} == {"sgd", "lars"}


def test_the_parts_are_modules() -> None:
    for part in (*gpu.PARTS, *gpu.STUDIES):
        module, *_ = part.words
        assert find_spec(module), part


@pytest.mark.skipif(card.missing() is None, reason="there is a card")
def test_without_a_card_one_line_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(gpu, "CHECKS", gpu.Part("checks", ("platform",), 60))
    assert gpu.everything(gpu.PARTS, said.append) == gpu.NO_CARD
    assert said[-1].startswith("benchmarks.gpu: no NVIDIA card") and "make gpu" in said[-1]


def test_a_part_that_fails_or_lacks_its_data_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    said: list[str] = []
    assert not gpu.run(gpu.Part("broken", ("no_such_module",), 60), said.append)
    assert said[-1] == "broken failed: exit code 1"
    assert not gpu.run(gpu.STUDIES[-1], said.append) and "`torusrun data get cifar10` prepares it" in said[-1]


def test_a_part_at_its_limit_ends_with_all_its_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "stays.py").write_text("import subprocess; subprocess.run(['sleep', '600'])")
    monkeypatch.setattr(gpu, "ROOT", tmp_path)
    said: list[str] = []
    assert not gpu.run(gpu.Part("stays", ("stays",), 0.5), said.append)
    assert said[-1] == "stays failed: not done in 0 s"


def test_all_parts_end_in_the_given_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, said, limits = [0.0], list[str](), dict[str, float]()

    def run(part: gpu.Part, say: gpu.Say) -> bool:
        limits[part.name] = part.limit_s
        clock[0] += 200.0
        return True

    monkeypatch.setattr(card, "missing", lambda: None)
    monkeypatch.setattr(card, "facts", lambda device: "a card")
    monkeypatch.setattr(gpu, "run", run)
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    parts = tuple(gpu.Part(name, (), 300.0) for name in "abcd")
    assert gpu.everything(parts, said.append, whole_s=540.0) == gpu.FAILED
    assert limits == {"a": 300.0, "b": 300.0, "c": 140.0}
    assert said[-1] == "d is left out: 9 minutes are over; name it with --only"


def dies(rank: int, device: torch.device) -> None:
    if rank == 1:
        os._exit(7)
    time.sleep(600)  # in a collective it would fail, too, maybe before the death is noticed


def fails(rank: int, device: torch.device) -> None:
    if rank == 1:
        raise ValueError("the cause")
    time.sleep(600)


@pytest.mark.parametrize(("task", "cause"), [(dies, "rank 1 died: exit code 7"), (fails, "the cause")])
def test_the_rank_that_failed_first_is_named(task: Callable[[int, torch.device], None], cause: str) -> None:
    with pytest.raises(RuntimeError, match=cause):
        together(2, "cpu", task)
