"""Options of built-ins are checked before a job waits in the queue."""

import re

import pytest

from torusrun.training.recipe.fits import complaints
from torusrun.training.recipe.train import DataKeys, ModelKeys, OptimizerKeys, Train

FILES = {"root": "/data"}
RESNET = ModelKeys("resnet18")


@pytest.mark.parametrize(
    ("train", "said"),
    [
        (Train(data=DataKeys("imagefolder", {**FILES, "tset_batch": 4})), "tset_batch: .* did you mean 'test_batch'"),
        (Train(data=DataKeys("digits", {"seed": 1})), "options.seed: digits has no such option; it takes none"),
        (Train(model=RESNET, data=DataKeys("tar-shards", {**FILES, "max_corrupt": 7})), "max_corrupt must be a share"),
        (Train(model=RESNET, data=DataKeys("imagefolder", {"root": "rel"})), "'rel' must be the absolute path"),
        (
            Train(model=RESNET, data=DataKeys("imagefolder", {**FILES, "samples": "60"})),
            "samples must be a whole number",
        ),
        (Train(model=ModelKeys("resnet18", {"widthz": 3})), "widthz: resnet18 has no such option; it takes version"),
        (Train(model=ModelKeys("resnet50", {"version": "v9"})), "version: must be one of v1, v1.5"),
        (
            Train(data=DataKeys("imagefolder", FILES), model=ModelKeys("resnet-digits")),
            r"not \(3, 224, 224\); resnet18",
        ),
        (Train(optimizer=OptimizerKeys("sgd", options={"foo": 1})), "options.foo: sgd has no such option"),
    ],
)
def test_options_that_a_built_in_does_not_take_are_reported(train: Train, said: str) -> None:
    ((_, told),) = complaints(train)
    assert re.search(said, told), told


@pytest.mark.parametrize(
    "train",
    [
        Train(),
        Train(data=DataKeys("synthetic", {"classes": 10, "samples": 64, "channels": 1})),
        Train(data=DataKeys("imagefolder", {"root": "$DATA/images", "samples": 60}), model=ModelKeys("resnet18")),
        Train(data=DataKeys("mine:data", {"any": 1}), model=ModelKeys("mine:model", {"any": 1})),
        Train(optimizer=OptimizerKeys("rmsprop-warmup", options={"centre": 5.0})),
    ],
)
def test_what_it_takes_is_not(train: Train) -> None:
    assert list(complaints(train)) == []
