"""Networks compiled by torch.compile, or eager: which form a run has, what it costs, and equal to plain torch."""

from __future__ import annotations

import copy
import os
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import phased
import pytest
import torch
from phased import CPU, Small, configured, learner
from phased import group as group
from states import differing
from torch import nn

from torusrun.training.config import Ranks
from torusrun.training.learner import Learner
from torusrun.training.recipe.facts import compiles
from torusrun.training.recipe.reading import ConfigError
from torusrun.training.recipe.train import ModelKeys, Train
from torusrun.training.step import form
from torusrun.training.step.form import FOLDER, KEPT, Form, compile_, lacking, pack, unpack

GPU = torch.device("cuda")


@pytest.fixture(autouse=True)
def own_temporary_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.delenv(FOLDER, raising=False)
    monkeypatch.setenv("CXX", "true")
    folder = tmp_path / "node"
    folder.mkdir()
    monkeypatch.setattr(form.tempfile, "tempdir", str(folder))
    return folder


def compiled_by(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `backend` take the graphs: the default one needs half a minute, a C++ compiler and the headers of Python."""
    compiled = nn.Module.compile
    monkeypatch.setattr(nn.Module, "compile", lambda self, **keys: compiled(self, backend=backend, **keys))


def test_a_compiled_network_is_the_same_program_for_a_batch_whatever_came_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = list[str]()

    def keep(graph: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        found.append(str([getattr(each, "shape", each) for each in inputs]))
        return graph.forward

    def program(*batches: int) -> str:
        torch._dynamo.reset()
        model = Small()
        compile_(model, "fp32")
        for batch in batches:
            model(torch.ones(batch, 1, 8, 8))
        return found[-1]

    compiled_by(keep, monkeypatch)
    assert program(8, 16) == program(16)


def test_without_a_compiler_the_ranks_say_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX")
    with pytest.raises(ConfigError, match=r"train\.compile: .*needs a C\+\+ compiler on a CPU.*load a module"):
        form.check(Train(compile=True), CPU)
    form.check(Train(), CPU)
    assert "Triton" in lacking(GPU) or "no gcc or clang" in lacking(GPU)


class Linear(nn.Module):
    """A small network. An nn.Sequential would not be compiled at all."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.layer = nn.Linear(64, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.layer(images.flatten(1))


def test_a_compiled_network_learns_the_same_and_resumes(
    group: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled_by("aot_eager", monkeypatch)
    monkeypatch.setattr(phased, "Small", Linear)
    keys = {"phases": (), "epochs": 1}
    plain, compiled = learner(tmp_path, **keys)[0], learner(tmp_path, compile=True, **keys)[0]
    names = list(compiled.state()["model"])
    for _ in range(6):
        compiled.step(stop=False)
        if compiled.progress.steps == 3:
            halfway = copy.deepcopy(compiled.state())
    undisturbed = copy.deepcopy(compiled.state())
    compiled.restore(halfway)
    while compiled.progress.steps < 6:
        compiled.step(stop=False)
    assert not differing(compiled.state(), undisturbed)
    while plain.progress.steps < 6:
        plain.step(stop=False)
    assert list(plain.state()["model"]) == names, "its names stay"
    found, expected = compiled.evaluate().model, plain.evaluate().model
    assert found.loss == pytest.approx(expected.loss, abs=1e-5)
    for name, tensor in plain.state()["model"].items():
        assert torch.allclose(undisturbed["model"][name], tensor, atol=1e-5), name
    assert undisturbed["compiled"] and not plain.state()["compiled"]


def test_built_in_networks_are_compiled_on_a_gpu_unless_told_otherwise() -> None:
    own = ModelKeys("mine:network")
    cases = [(Train(), True, True), (Train(), False, False), (Train(model=own), True, False)]
    cases += [(replace(train, compile=told), gpu, told) for train, gpu, _ in cases for told in (True, False)]
    assert [compiles(train, gpu) for train, gpu, _ in cases] == [answer for _, _, answer in cases]


def automatic(folder: Path, monkeypatch: pytest.MonkeyPatch, lacks: str = "") -> Learner:
    """A training as on a GPU, where networks are compiled without a word about it in the recipe."""
    monkeypatch.setattr(form, "compiles", lambda train, gpu: True if train.compile is None else train.compile)
    monkeypatch.setattr(form, "lacking", lambda device: lacks)
    monkeypatch.setattr(phased, "Small", Linear)
    return learner(folder, phases=(), epochs=1)[0]


def test_a_network_that_nobody_asked_to_compile_is_eager_without_a_compiler(
    group: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    one = automatic(tmp_path, monkeypatch, "there is no gcc")
    one.step(stop=False)
    assert not one.form.compiled and one.model._compiled_call_impl is None
    assert capsys.readouterr().err == "training: the network is not compiled, and slower: there is no gcc\n"


def test_a_network_that_cannot_be_compiled_goes_on_eager_with_the_reason(
    group: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(graph: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        raise RuntimeError("ptxas fatal: unknown architecture")

    torch._dynamo.reset()
    compiled_by(fails, monkeypatch)
    one = automatic(tmp_path, monkeypatch)
    for _ in range(2):
        one.step(stop=False)
    said = capsys.readouterr().err.splitlines()
    assert [line.partition(":")[2][:20] for line in said] == [" torch.compile takes", " the network cannot "]
    assert "ptxas fatal" in said[1], said
    assert not one.state()["compiled"]
    eager = learner(tmp_path, phases=(), epochs=1, compile=False)[0]
    for _ in range(2):
        eager.step(stop=False)
    assert not differing({**one.state(), "compiled": False}, eager.state())


@pytest.mark.parametrize(
    ("told", "before", "now", "said"),
    [
        (None, None, True, ""),
        (None, True, True, ""),
        (None, False, False, "the attempts before did not"),
        (True, False, True, "the attempts before computed eager, this one compiled"),
        (False, True, False, "the attempts before computed compiled, this one eager"),
    ],
)
def test_an_attempt_has_the_form_of_those_before_or_says_why_not(
    group: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    told: bool | None, before: bool | None, now: bool, said: str,
) -> None:  # fmt: skip
    monkeypatch.setattr(form, "compiles", lambda train, gpu: True if train.compile is None else train.compile)
    settings = configured(tmp_path, phases=(), compile=told)
    one = Form(settings, Ranks(0, 1, 0), CPU, Small())
    one.follow(before)
    assert one.compiled == now and said in capsys.readouterr().err


def test_a_later_attempt_on_another_node_has_what_was_compiled(
    group: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = list[bool]()

    def backend(graph: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        """Compiles into a file, as inductor."""
        file = Path(os.environ[FOLDER]) / "triton" / "kernel.so"
        ran.append(file.exists())
        file.parent.mkdir(exist_ok=True)
        file.write_text("compiled")
        return graph.forward

    compiled_by(backend, monkeypatch)
    for node in ("a", "b"):
        torch._dynamo.reset()
        (tmp_path / node).mkdir()
        monkeypatch.setattr(form.tempfile, "tempdir", str(tmp_path / node))
        monkeypatch.delenv(FOLDER, raising=False)
        one = automatic(tmp_path, monkeypatch)
        one.step(stop=False)
        folder = Path(os.environ[FOLDER])
        assert folder.is_relative_to(tmp_path / node) and folder.stat().st_mode & 0o777 == 0o700
    assert ran == [False, True]
    said = capsys.readouterr().err
    assert "about a minute" in said and "some seconds" in said
    assert (configured(tmp_path).metrics.parent / KEPT).stat().st_mode & 0o777 == 0o600


def test_files_that_another_rank_has_open_stay_and_foreign_names_are_refused(tmp_path: Path) -> None:
    for name in ("from", "to"):
        (tmp_path / name / "triton").mkdir(parents=True)
        (tmp_path / name / "triton" / "a.so").write_text(name)
    (tmp_path / "from" / "b.py").write_text("b")
    (tmp_path / "from" / ".1.tmp").write_text("unfinished")
    kept = tmp_path / KEPT
    pack(tmp_path / "from", kept)
    unpack(kept, tmp_path / "to")
    found = {str(each.relative_to(tmp_path / "to")): each.read_text() for each in (tmp_path / "to").rglob("*.*")}
    assert found == {"triton/a.so": "to", "b.py": "b"}
    for name in ("../c", "/tmp/c"):
        with tarfile.open(kept, "w") as archive:
            member = tarfile.TarInfo(name)
            archive.addfile(member)
        with pytest.raises(tarfile.TarError):
            unpack(kept, tmp_path / "to")
    kept.unlink()
    kept.symlink_to(tmp_path / "from" / "b.py")
    with pytest.raises(OSError, match="symbolic link"):
        unpack(kept, tmp_path / "to")
