"""The keys of `train.phases`: values that change during a run, each valid until an epoch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from torusrun.training.recipe.key import Items, Limits, key, needed

EPOCHS = Limits(above=0, at_most=1e6)
RATE = Limits(at_least=0, at_most=1e9)
PIXELS = Limits(at_least=1, at_most=4096)
MARGINS = Limits(at_least=1, at_most=10)
STAYS = "; default: as before, at first as in"

Share = Annotated[float, Limits(above=0, at_most=1.0)]
Ratio = Annotated[float, Limits(above=0, at_most=100.0)]
Rates = Annotated[tuple[Annotated[float, RATE], ...], Items(1, 2)]


@dataclass(frozen=True)
class PhaseKeys:
    """A part of the run, from the end of the phase before to `until`."""

    until: Annotated[float, EPOCHS] = needed("end of the phase; the last phase ends at train.epochs", unit="epochs")
    lr: Rates | None = key(
        None, "learning rate: one number, or [from, to]; all phases have it, or none, and train.schedule sets the rate"
    )
    power: Annotated[float, Limits(above=0, at_most=100)] = key(
        1.0, "the rate is to + (from - to) * (1 - x)^power; x goes from 0 at the start of the phase to 1 at `reach`"
    )
    reach: Annotated[float, EPOCHS] | None = key(
        None, "epoch at which the second rate would be reached; default: `until`", unit="epochs"
    )
    batch: Annotated[int, Limits(at_least=1, at_most=10**9)] | None = key(
        None, f"samples per step, over all ranks{STAYS} train.batch"
    )
    size: Annotated[int, PIXELS] | None = key(None, f"side of training images{STAYS} train.data", unit="pixels")
    test_size: Annotated[int, PIXELS] | None = key(None, f"side of test images{STAYS} train.data", unit="pixels")
    rectangular: bool | None = key(None, f"test images keep their aspect ratio{STAYS} train.data")
    test_margin: Annotated[float, MARGINS] | None = key(
        None, f"short side of a test image, divided by the side of the tested part{STAYS} train.data"
    )
    area: tuple[Share, Share] | None = key(
        None, f"least and largest share of an image that a random crop takes{STAYS} train.data"
    )
    aspect: tuple[Ratio, Ratio] | None = key(
        None, f"least and largest width of a random crop, divided by its height{STAYS} train.data"
    )
    augment: bool | None = key(None, f"whether training images are changed at random{STAYS} train.data")
    weight_decay: Annotated[float, Limits(at_least=0, at_most=1e6)] | None = key(None, f"L2{STAYS} train.optimizer")
    nodes: Annotated[int, Limits(at_least=1, at_most=100_000)] | None = key(
        None,
        "nodes of the attempt that trains this phase; default: as in the previous phase, "
        "in the first phase those of the run",
    )
    collapse: bool = key(
        False,
        "a branch: at its end its weights become a member of the ensemble, and model and optimizer are "
        "reset to their state at its start",
    )
