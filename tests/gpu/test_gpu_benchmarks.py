"""The benchmarks of `make gpu`, small on the CPU."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from benchmarks import lars
from benchmarks.gpu import __main__ as gpu
from benchmarks.gpu import card, overlap, stem, throughput
from benchmarks.gpu.one_card import together
from benchmarks.large_batch.__main__ import train_all
from benchmarks.large_batch.results import missing, read
from benchmarks.large_batch.study import CIFAR10

LIMIT_S = 600.0


@pytest.fixture(autouse=True)
def same_settings() -> Iterator[None]:
    threads, determinism = torch.get_num_threads(), torch.get_deterministic_debug_mode()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
    torch.set_deterministic_debug_mode(determinism)


@pytest.mark.needs("c++")
def test_all_parts_run_on_a_cpu_and_keep_their_results(tmp_path: Path) -> None:
    """So their first run on a card does not fail on a mistake in them. Compilation is left out: it takes minutes."""
    command = [sys.executable, "-m", "benchmarks.gpu", "--small", "--results", str(tmp_path)]
    quick = {**os.environ, "TORCHDYNAMO_DISABLE": "1", "OMP_NUM_THREADS": "1"}
    ran = subprocess.run(command, cwd=gpu.ROOT, env=quick, capture_output=True, text=True, timeout=LIMIT_S)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    (kept,) = tmp_path.glob("gpu-cpu-*.txt")
    assert kept.read_text() == ran.stdout
    shown = {part: text for part, _, text in (each.partition(": ") for each in ran.stdout.split("\n== "))}
    assert [part for part in shown if part in {each.name for each in gpu.PARTS}] == [each.name for each in gpu.PARTS]
    for name, forms in throughput.FORMS.items():
        wanted, rows = [form.name for form in forms], [line.partition("  ")[0] for line in shown[name].splitlines()]
        assert [row for row in rows if row in wanted] == wanted, shown[name]
    assert all(f"\n{form}  " in shown["lars"] for form in lars.FORMS)
    assert all(f"\n{form}  " in shown["stem"] for form in stem.FORMS)
    assert all(name in shown["overlap"] for name in overlap.SMALL) and "2 ranks on a CPU" in shown["overlap"]
    met_s, first_s, last_s = map(float, row_of(shown["start"], "eager")[-3:])
    assert 0 < met_s <= first_s <= last_s


def row_of(text: str, name: str) -> list[str]:
    return next(line.split() for line in text.splitlines() if line.startswith(name))


def test_a_stop_leaves_what_was_measured_and_no_process(tmp_path: Path) -> None:
    (tmp_path / "stays.py").write_text("import os, time; print('measured', os.getpid()); time.sleep(600)")
    program = f"""if True:
        import sys, pathlib
        from benchmarks.gpu import __main__ as gpu
        gpu.ROOT, gpu.PARTS = pathlib.Path({str(tmp_path)!r}), (gpu.Part("stays", (), 600, ("stays",)),)
        sys.exit(gpu.main(["--small", "--results", {str(tmp_path)!r}]))
    """
    with subprocess.Popen([sys.executable, "-c", program], cwd=gpu.ROOT, stdout=subprocess.PIPE, text=True) as process:
        said = next(line.split() for line in process.stdout or () if line.startswith("measured"))
        process.terminate()
        assert process.wait(LIMIT_S) == 143
    (kept,) = tmp_path.glob("gpu-cpu-*.txt")
    assert f"{' '.join(said)}\nbenchmarks.gpu: stopped" in kept.read_text()
    with pytest.raises(ProcessLookupError):
        os.kill(int(said[1]), 0)


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
    assert sum(part.limit_s for part in gpu.PARTS[:4]) <= gpu.WHOLE_S < 540, "the most valuable have their whole time"


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
