"""The implementations of LARS against the reference in float64, and against each other."""

from __future__ import annotations

import copy
import ctypes
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import lars_ranks
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torus_ranks import Pools

from tests.training.lars_loop import Loop
from torusrun.training.optim import cpp
from torusrun.training.optim.cpp import Cpp
from torusrun.training.optim.kernel import Foreach, Kernel, Piece, Rule, Unavailable
from torusrun.training.optim.lars import LARS, build, kernel_for
from torusrun.training.optim.sgd import SGD
from torusrun.training.recipe.reading import ConfigError
from torusrun.training.recipe.train import LarsKeys, OptimizerKeys, Train

ROOT = Path(__file__).resolve().parents[2]
needs_compiler = pytest.mark.needs("c++")
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1" and importlib.util.find_spec("triton") is not None
SHAPES = st.lists(
    st.sampled_from([(1,), (1, 1), (7,), (3, 5), (4, 1, 3, 3), (33,), (31, 33), (64, 64), (5, 4099), (130, 257)]),
    min_size=1, max_size=5,
)  # fmt: skip
KEYS = st.builds(
    LarsKeys, trust=st.floats(1e-3, 1.0), eps=st.sampled_from([0.0, 1e-6]),
    lr_in_momentum=st.booleans(), ratio_in_momentum=st.booleans(),
    ratio_decay=st.none() | st.floats(0.0, 0.1),
)  # fmt: skip
RATES = st.just(0.0) | st.floats(1e-3, 2.0)  # a norm may be 0 in float32 alone
CHANGES = st.just(1.0) | st.floats(0.1, 1.1)
STEPS = st.lists(st.tuples(RATES, CHANGES, st.floats(0, 0.1)), min_size=1, max_size=4)  # the last is the decay


def triton(rule: Rule) -> Kernel:
    from torusrun.training.optim.triton_lars import Triton

    return Triton(rule, torch.device("cpu"))


KERNELS = [
    Foreach,
    pytest.param(Cpp, marks=needs_compiler),
    pytest.param(
        triton, marks=pytest.mark.skipif(not INTERPRETED, reason="runs within test_triton_in_its_interpreter")
    ),
]


def drawn(shapes: Sequence[tuple[int, ...]], seed: int) -> list[Piece]:
    """Random tensors that begin between the addresses where torch aligns them; one in eight has no norm."""
    draw = torch.Generator().manual_seed(seed)

    def tensor(shape: tuple[int, ...]) -> torch.Tensor:
        zero = torch.randint(8, (), generator=draw) == 0
        size = torch.Size(shape).numel()
        return (torch.randn(size + 1, generator=draw) * (0.0 if zero else 1.0))[1:].view(shape)

    return [Piece(tensor(s), tensor(s), tensor(s), scaled=len(s) > 1) for s in shapes]


def as_double(pieces: list[Piece]) -> list[Piece]:
    return [Piece(p.weight.double(), p.gradient.double(), p.velocity.double(), p.scaled) for p in pieces]


@pytest.mark.parametrize("kernel", KERNELS)
@given(SHAPES, KEYS, STEPS, st.integers(0, 10_000))
@settings(max_examples=12 if INTERPRETED else 40, deadline=None)
def test_every_implementation_is_the_reference_within_rounding(
    kernel: Callable[[Rule], Kernel],
    shapes: list[tuple[int, ...]],
    keys: LarsKeys,
    steps: list[tuple[float, float, float]],
    seed: int,
) -> None:
    rule = Rule(0.9, 0.01, keys)
    pieces = drawn(shapes, seed)
    exact = as_double(pieces)
    tested, reference = kernel(rule), Loop(rule)
    for rate, change, decay in steps:
        for mover, moved in ((tested, pieces), (reference, exact)):
            mover.rule = replace(mover.rule, weight_decay=decay)
            mover.move(moved, rate, change=change)
    for mine, right in zip(pieces, exact, strict=True):
        for got, wanted in ((mine.weight, right.weight), (mine.velocity, right.velocity)):
            largest = max(1.0, right.weight.abs().max().item(), right.velocity.abs().max().item())
            assert (got - wanted).abs().max().item() <= 2e-6 * len(steps) * largest


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton has no wheel for this machine")
def test_triton_in_its_interpreter() -> None:
    """In a process of its own, since Triton reads TRITON_INTERPRET when it is imported."""
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__, "-k", "-triton- or [triton]"]
    interpreted = {**os.environ, "TRITON_INTERPRET": "1"}
    ran = subprocess.run(words, env=interpreted, cwd=ROOT, capture_output=True, text=True, timeout=200)
    assert ran.returncode == 0 and "1 passed" in ran.stdout, ran.stdout + ran.stderr


@needs_compiler
@pytest.mark.parametrize("flags", [("-O1",), ("-O3", "-mavx2", "-mfma")], ids=["narrow", "wide"])
def test_the_width_of_the_vectors_changes_no_bit(flags: tuple[str, ...], tmp_path: Path) -> None:
    if "-mavx2" in flags and "avx2" not in Path("/proc/cpuinfo").read_text():
        pytest.skip("this CPU has no AVX2")
    source, library = tmp_path / "lars.cpp", tmp_path / "lars.so"
    source.write_text(cpp.SOURCE.read_text().replace("__attribute__((target_clones", "//"))
    others = [flag for flag in cpp.FLAGS if flag != "-O3"]
    cpp._compile(
        [next(filter(None, map(shutil.which, cpp.COMPILERS))), *others, *flags, str(source), "-o", str(library)]
    )
    rule = Rule(0.9, 0.01, LarsKeys(trust=0.1))
    usual, single = Cpp(rule), Cpp(rule)
    single._library = ctypes.CDLL(str(library))
    one, other = drawn([(5, 4099), (31, 33), (1, 1), (1000,)], 2), drawn([(5, 4099), (31, 33), (1, 1), (1000,)], 2)
    for rate in (0.3, 0.7):
        usual.move(one, rate)
        single.move(other, rate)
    for a, b in zip(one, other, strict=True):
        assert torch.equal(a.weight, b.weight) and torch.equal(a.velocity, b.velocity)


def network() -> nn.Sequential:
    torch.manual_seed(5)
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 10))


def backward(net: nn.Module, step: int) -> None:
    draw = torch.Generator().manual_seed(step)
    net.zero_grad()
    net(torch.randn(4, 3, 8, 8, generator=draw)).square().mean().backward()


def optimizer(net: nn.Module, **keys: object) -> LARS:
    return build(net, Train(optimizer=OptimizerKeys("lars", lars=LarsKeys(trust=0.05, **keys))))  # type: ignore[arg-type]


@needs_compiler
@pytest.mark.parametrize("forms", [("fused", "foreach"), ("foreach", "fused")])
def test_a_checkpoint_of_one_form_continues_in_another(forms: tuple[str, str]) -> None:
    straight, changed = network(), network()
    one, first = optimizer(straight, form=forms[0]), optimizer(changed, form=forms[0])
    for step in range(2):
        for net, mover in ((straight, one), (changed, first)):
            backward(net, step)
            mover.step(0.2)
    second = optimizer(changed, form=forms[1])
    second.load_state_dict(first.state_dict())
    for step in (2, 3):
        for net, mover in ((straight, one), (changed, second)):
            backward(net, step)
            mover.step(0.4)
    for left, right in zip(straight.parameters(), changed.parameters(), strict=True):
        torch.testing.assert_close(left, right, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("make", [optimizer, lambda net: SGD(net, 0.9, 0.01)], ids=["lars", "sgd"])
def test_steps_of_parts_make_the_step_of_all(make: Callable[[nn.Module], LARS | SGD]) -> None:
    together, apart = network(), network()
    one, other = make(together), make(apart)
    for step, rate in enumerate((0.1, 0.5)):
        backward(together, step)
        backward(apart, step)
        one.step(rate)
        parameters = list(apart.parameters())
        other.step_part(parameters[3:], rate)
        other.step_part(parameters[:3], rate)
    assert all(map(torch.equal, together.parameters(), apart.parameters()))


@pytest.mark.parametrize(
    ("skip", "plain"),
    [
        ("vectors", {"0.bias", "1.weight", "1.bias", "4.bias"}),
        ("normalization", {"1.weight", "1.bias"}),
        ("nothing", set()),
    ],
)
def test_skipped_tensors_get_neither_ratio_nor_decay(skip: str, plain: set[str]) -> None:
    net = network()
    for weight in net.parameters():
        nn.init.uniform_(weight, 0.5, 1.0)  # the ratio of a tensor of zeros would be 1
    before = {name: weight.detach().clone() for name, weight in net.named_parameters()}
    mover = optimizer(net, skip=skip)
    backward(net, 0)
    mover.step(0.5)
    moved_plainly = {
        name
        for name, weight in net.named_parameters()
        if weight.grad is not None and torch.allclose(weight.detach(), before[name] - 0.5 * weight.grad)
    }
    assert moved_plainly == plain


def test_a_step_sees_new_gradients_new_weights_and_none_at_all() -> None:
    """Although it keeps the list of its tensors from step to step."""
    made = [nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2)) for _ in range(2)]
    made[1].load_state_dict(made[0].state_dict())
    optimizer = LARS(made[0], 0.9, 0.01, LarsKeys(trust=0.1, form="foreach"))
    optimizer.step(0.5)
    state = copy.deepcopy(optimizer.state_dict())
    for step in range(4):
        for number, (weight, other) in enumerate(zip(made[0].parameters(), made[1].parameters(), strict=True)):
            fresh = torch.full_like(weight, step + number + 1.0)
            if step == 1:
                weight.grad.copy_(fresh)  # type: ignore[union-attr]
            else:
                weight.grad = fresh
            if step == 2:
                weight.data = weight.data.clone()
            other.grad = fresh.clone()
        optimizer.step(0.5)
        afresh = LARS(made[1], 0.9, 0.01, LarsKeys(trust=0.1, form="foreach"))
        afresh.load_state_dict(state)
        afresh.step(0.5)
        state = copy.deepcopy(afresh.state_dict())
        assert all(map(torch.equal, made[0].parameters(), made[1].parameters())), step


def test_the_same_tensors_are_listed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel on a GPU keeps its table of addresses while the same list comes again."""
    net, lists = network(), list[Sequence[Piece]]()
    lars = optimizer(net, form="foreach")
    monkeypatch.setattr(lars._kernel, "move", lambda pieces, rate, change: lists.append(pieces))
    last, *others = parameters = list(net.parameters())
    for weight in others:
        weight.grad = torch.ones_like(weight)
    for some in (parameters, others, []):
        for _ in range(2):
            lars.step_part(some, 0.5)
    one, again, part, part_again = lists
    assert one is again and len(one) == len(others) and part is part_again, "a weight without a gradient is not moved"


def test_a_gradient_in_another_layout_is_read_right() -> None:
    one, other = network(), network()
    movers = optimizer(one), optimizer(other)
    for net in (one, other):
        backward(net, 0)
    weight = other[0].weight
    weight.grad = weight.grad.to(memory_format=torch.channels_last)  # type: ignore[union-attr]
    for mover in movers:
        mover.step(0.5)
    assert torch.equal(one[0].weight, weight)


def no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    cpp.library.cache_clear()
    monkeypatch.setattr(cpp, "COMPILERS", ("no-such-compiler",))


def test_without_a_compiler_auto_takes_foreach_and_fused_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    no_compiler(monkeypatch)
    lars = optimizer(network())
    assert isinstance(lars._kernel, Foreach)
    assert "no C++ compiler" in (lars.agree(lambda here: here) or "")
    with pytest.raises(
        ConfigError, match=r"train.optimizer.lars.form: 'fused' is not available: there is no C\+\+ compiler"
    ):
        optimizer(network(), form="fused")


@needs_compiler
def test_a_source_that_does_not_compile_is_a_reason_and_no_crash(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    broken = tmp_path / "lars.cpp"
    broken.write_text("not C++")
    cpp.library.cache_clear()
    monkeypatch.setattr(cpp, "SOURCE", broken)
    with pytest.raises(Unavailable, match=r"cannot compile lars.cpp: .*error"):
        cpp.library()


@needs_compiler
def test_one_rank_without_it_takes_the_fused_form_from_all() -> None:
    lars = optimizer(network())
    assert isinstance(lars._kernel, Cpp)
    assert lars.agree(lambda here: True) is None and isinstance(lars._kernel, Cpp)
    assert "another rank" in (lars.agree(lambda here: False) or "") and isinstance(lars._kernel, Foreach)


@needs_compiler
def test_ranks_take_foreach_if_one_of_them_has_no_compiler(pools: Pools) -> None:
    assert pools.of(3).ask(lars_ranks.settled, -1) == [("Cpp", "")] * 3
    found = pools.of(3).ask(lars_ranks.settled, 1)
    assert [kernel for kernel, _ in found] == ["Foreach"] * 3
    assert "another rank cannot" in found[0][1] and [said for _, said in found[1:]] == ["", ""], "rank 0 alone says it"
    assert "no C++ compiler" in pools.of(3).ask(lars_ranks.settled, 0)[0][1]


@needs_compiler
def test_it_is_foreach_where_that_is_named_and_for_other_dtypes() -> None:
    rule = Rule(0.9, 0.01, LarsKeys())
    assert isinstance(kernel_for([torch.ones(2, 2)], replace(rule, keys=LarsKeys(form="foreach")))[0], Foreach)
    assert isinstance(kernel_for([torch.ones(2, 2, dtype=torch.float64)], rule)[0], Foreach)
