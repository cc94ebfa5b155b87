"""ResNet-18 and ResNet-50 against torchvision's, and what is told of them against their modules."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
import torchvision_record
from torch import nn

from torusrun.training.models import residual, resnet
from torusrun.training.models.layers import Start
from torusrun.training.models.resnet import BasicBlock, Bottleneck
from torusrun.training.recipe.facts import DataFacts, model_facts
from torusrun.training.recipe.reading import ConfigError
from torusrun.training.recipe.train import ModelKeys, Train

BUILDERS = {"resnet18": residual.build_resnet18, "resnet50": residual.build_resnet50}
DRAWN = {"init": "he-fan-in", "last_std": 0.01, "zero_bias": True, "zero_gamma": True}
PHOTOGRAPHS = DataFacts(1_281_167, 50_000, 1000, (3, 224, 224))
RECORD = json.loads(torchvision_record.RECORD.read_text())


def empty(keys: ModelKeys, classes: int, shape: tuple[int, ...]) -> nn.Module:
    """A network with numbers made by a formula: faster than drawn ones."""
    with torch.device("meta"):
        model: nn.Module = BUILDERS[keys.name](classes=classes, shape=shape, seed=1, **keys.options)
    model.to_empty(device="cpu")
    torchvision_record.fill(model)
    return model


def small(bottleneck: bool = True, **options: Any) -> nn.Module:
    """A network with one block in each stage."""
    plain = {"version": "v1.5", "start": Start(), "channels_last": False}
    return resnet.ResNet((1, 1, 1, 1), bottleneck=bottleneck, classes=100, channels=3, seed=1, **{**plain, **options})


@pytest.fixture(scope="module")
def torchvision() -> Any:
    try:
        return torchvision_record.theirs()
    except (ImportError, RuntimeError) as error:  # RuntimeError: it is built for another torch
        pytest.skip(f"torchvision cannot be imported: {error}")


@pytest.mark.parametrize("name", torchvision_record.NAMES)
def test_names_shapes_and_outputs_are_those_recorded_of_torchvision(name: str) -> None:
    mine, theirs = torchvision_record.described(empty(ModelKeys(name), 1000, (3, 64, 64))), RECORD[name]
    assert mine["state"] == theirs["state"] and mine["parameters"] == theirs["parameters"]
    assert mine["outputs"] == pytest.approx(theirs["outputs"], rel=1e-4, abs=1e-4)


@pytest.mark.parametrize("name", torchvision_record.NAMES)
def test_the_weights_of_torchvision_give_the_outputs_of_torchvision(name: str, torchvision: Any) -> None:
    torch.manual_seed(1)
    theirs = getattr(torchvision, name)(num_classes=10)
    mine = BUILDERS[name](classes=10, shape=(3, 64, 64), seed=1)
    for one, other in zip(mine.parameters(), theirs.parameters(), strict=True):
        assert torch.equal(one, other), "a seed stands for other weights than torchvision's"
    torchvision_record.fill(theirs)
    mine.load_state_dict(theirs.state_dict(), strict=True)
    images = torch.randn(2, 3, *torchvision_record.PIXELS)
    for train in (False, True):
        assert torch.equal(mine.train(train)(images), theirs.train(train)(images))


def test_resnet50_has_the_size_of_the_published_one() -> None:
    told = residual.facts_resnet50(PHOTOGRAPHS)
    assert len(told.tensors) == 161
    assert sum(tensor.parameters for tensor in told.tensors) == 25_557_032
    assert sum(tensor.work for tensor in told.tensors) == pytest.approx(4.09e9, rel=1e-3)
    assert told.statistics == 53_120 and len(told.norms) == 53


def multiplied(model: nn.Module, shape: tuple[int, ...]) -> int:
    """The multiply-adds of convolutions and linear layers for one sample, counted while it goes through."""
    counted: list[int] = []
    for module in model.modules():
        if isinstance(module, (nn.Conv2d, nn.Linear)):
            module.register_forward_hook(lambda m, _, out: counted.append(m.weight.numel() * out[0, 0].numel()))
    with torch.no_grad():
        model.eval()(torch.zeros(1, *shape))
    return sum(counted)


@pytest.mark.parametrize("shape", [(3, 65, 97), (1, 8, 8)])
@pytest.mark.parametrize(
    ("name", "options"),
    [("resnet18", {}), ("resnet50", {}), ("resnet50", {"version": "v1", **DRAWN, "channels_last": True})],
)
def test_the_facts_of_a_network_are_those_of_its_modules(
    name: str, options: dict[str, Any], shape: tuple[int, ...]
) -> None:
    keys = ModelKeys(name, options)
    check(empty(keys, 7, shape), DataFacts(100, 10, 7, shape), keys)


@pytest.mark.parametrize("shape", [(1, 8, 8), (1, 15, 6)])
@pytest.mark.parametrize("options", [{}, {"widths": (8,)}, {"widths": [4, 4, 12, 5], "zero_gamma": False}])
def test_so_it_is_of_the_network_for_the_digits(options: dict[str, Any], shape: tuple[int, ...]) -> None:
    model = residual.build_digits(classes=7, shape=shape, seed=1, **options)
    check(model, DataFacts(100, 10, 7, shape), ModelKeys("resnet-digits", options))


@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 15, 6)])
@pytest.mark.parametrize("options", [{}, {"widths": [4, 8], "blocks": 2, "stem": 1, "channels_last": False}])
def test_so_it_is_of_the_small_network(options: dict[str, Any], shape: tuple[int, ...]) -> None:
    model = residual.build_small(classes=7, shape=shape, seed=1, **options)
    check(model, DataFacts(100, 10, 7, shape), ModelKeys("resnet-small", options))


def test_the_layout_in_memory_changes_no_weight_of_the_small_network() -> None:
    one, other = (
        residual.build_small(classes=7, shape=(3, 8, 8), seed=1, channels_last=last).eval() for last in (False, True)
    )
    images = torch.randn(2, 3, 8, 8)
    assert all(map(torch.equal, one.parameters(), other.parameters()))
    assert torch.allclose(one(images), other(images), atol=1e-6)


def check(model: nn.Module, data: DataFacts, keys: ModelKeys) -> None:
    told = model_facts(Train(model=keys), data)
    assert told is not None
    assert [tensor.parameters for tensor in told.tensors] == [p.numel() for p in model.parameters()]
    channels = [module.num_features for module in model.modules() if isinstance(module, nn.BatchNorm2d)]
    assert sorted(told.norms) == sorted(channels)
    assert told.statistics == sum(buffer.numel() for buffer in model.buffers() if buffer.is_floating_point())
    assert sum(tensor.work for tensor in told.tensors) == multiplied(model, data.shape)


def test_v1_has_the_stride_in_the_first_convolution_and_the_parameters_of_v1_5() -> None:
    one, other = small(version="v1"), small()
    assert all(map(torch.equal, one.parameters(), other.parameters()))
    halving = [m for m in one.modules() if isinstance(m, Bottleneck) and m.conv1.stride == (2, 2)]
    assert len(halving) == 3 and all(block.conv2.stride == (1, 1) for block in halving)
    assert all(m.conv1.stride == (1, 1) for m in other.modules() if isinstance(m, Bottleneck))
    images = torch.randn(1, 3, 32, 32)
    assert not torch.allclose(one.eval()(images), other.eval()(images), rtol=1e-3)


@pytest.mark.parametrize("bottleneck", [False, True])
def test_with_zero_gamma_blocks_begin_as_identities_and_nothing_else_changes(bottleneck: bool) -> None:
    model, usual = small(bottleneck, start=Start(zero_gamma=True)), small(bottleneck)
    last = {f"{n}.{'bn2' if isinstance(m, BasicBlock) else 'bn3'}.weight" for n, m in model.named_modules()
            if isinstance(m, (BasicBlock, Bottleneck))}  # fmt: skip
    others = dict(usual.named_parameters())
    for key, weight in model.named_parameters():
        if key in last:
            assert not weight.any() and others[key].eq(1).all()
        else:
            assert torch.equal(weight, others[key])


def test_the_last_layer_begins_as_it_is_given_and_nothing_else_changes() -> None:
    model, others = small(start=Start(last_std=0.01, zero_bias=True)), dict(small().named_parameters())
    for key, weight in model.named_parameters():
        if key == "fc.weight":
            assert weight.std().item() == pytest.approx(0.01, rel=0.02) and abs(weight.mean().item()) < 1e-4
        elif key == "fc.bias":
            assert not weight.any() and others[key].all()
        else:
            assert torch.equal(weight, others[key])


@pytest.mark.parametrize("init", ["he-fan-out", "he-fan-in", "lecun-normal"])
def test_convolutions_have_the_deviation_of_their_init(init: Any) -> None:
    """MXNet's and Caffe's Xavier or MSRA by inputs, and TensorFlow's variance scaling, whose tails are cut off."""
    for name, module in small(start=Start(init=init)).named_modules():
        if isinstance(module, nn.Conv2d) and module.weight.numel() > 10_000:
            outputs, inputs = module.out_channels * module.weight[0, 0].numel(), module.weight[0].numel()
            variance = {"he-fan-out": 2 / outputs, "he-fan-in": 2 / inputs, "lecun-normal": 1 / inputs}[init]
            assert module.weight.std().item() == pytest.approx(variance**0.5, rel=0.03), name
            farthest = module.weight.abs().max().item() / variance**0.5
            assert (farthest <= 2 / resnet.OF_CUT_NORMAL * 1.0001) == (init == "lecun-normal"), name


def test_channels_last_is_another_layout_of_the_same_network() -> None:
    usual, laid_out = small(), small(channels_last=True)
    for one, other in zip(usual.parameters(), laid_out.parameters(), strict=True):
        assert torch.equal(one, other)
    assert all(m.weight.is_contiguous(memory_format=torch.channels_last) for m in laid_out.modules()
               if isinstance(m, nn.Conv2d))  # fmt: skip
    seen: list[torch.Tensor] = []
    laid_out.get_submodule("conv1").register_forward_hook(lambda _, inputs, outputs: seen.append(outputs))
    images = torch.randn(2, 3, 64, 48)
    torch.testing.assert_close(laid_out.eval()(images), usual.eval()(images), rtol=1e-4, atol=1e-4)
    assert seen[0].is_contiguous(memory_format=torch.channels_last)


def test_without_zero_gamma_the_blocks_for_the_digits_begin_with_all_they_have() -> None:
    images: dict[str, Any] = {"classes": 10, "shape": (1, 8, 8), "seed": 1}
    usual, full = residual.build_digits(**images), residual.build_digits(**images, zero_gamma=False)
    for (key, weight), other in zip(usual.named_parameters(), full.parameters(), strict=True):
        last = key.startswith("blocks") and key.endswith("norm2.weight")
        assert other.eq(1).all() and not weight.any() if last else torch.equal(weight, other)


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (ModelKeys("resnet50", {"version": "v2"}), "train.model.options.version: must be one of v1, v1.5, not 'v2'"),
        (
            ModelKeys("resnet50", {"init": "he"}),
            "options.init: must be one of he-fan-out, he-fan-in, lecun-normal, not",
        ),
        (ModelKeys("resnet50", {"last_std": -1}), "train.model.options.last_std must be at least 0, not -1"),
        (ModelKeys("resnet50", {"last_std": "x"}), "train.model.options.last_std must be a number, not 'x'"),
        (ModelKeys("resnet-digits", {"widths": 16}), "train.model.options.widths: must be a list"),
        (ModelKeys("resnet-small", {"blocks": 0}), "train.model.options.blocks must be"),
        (ModelKeys("resnet-small", {"stem": 1.5}), "train.model.options.stem must be a whole number"),
        (ModelKeys("resnet-digits", {"widths": (16, 0)}), "train.model.options.widths: must be a list"),
        (ModelKeys("resnet18", {"depth": 18}), "train.model.options: resnet18 does not take them"),
    ],
)
def test_wrong_options_are_reported_without_torch(keys: ModelKeys, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        model_facts(Train(model=keys), DataFacts(100, 10, 7, (1, 8, 8)))


def test_samples_that_are_no_images_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"resnet50 takes samples of shape \(channels, height, width\), not \(64,\)"):
        residual.build_resnet50(classes=10, shape=(64,), seed=1)
