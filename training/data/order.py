"""Which sample comes when: pure functions of the seed and the position, without torch.

The epochs' permutations stand one after the other in an endless stream. Step s takes positions s * batch to
(s + 1) * batch of it, so every batch is full, every sample comes once per epoch, and a resumed run sees the
rest. `random.Random(text).random()` is promised by Python to give the same numbers in every version.
"""

from __future__ import annotations

from functools import lru_cache
from random import Random


@lru_cache(maxsize=4)
def permutation(samples: int, key: str) -> tuple[int, ...]:
    """The numbers 0 to samples - 1 in the order that `key` stands for."""
    draw = Random(f"order/{key}").random
    weights = [draw() for _ in range(samples)]
    return tuple(sorted(range(samples), key=weights.__getitem__))


def rank_batch(step: int, *, batch: int, rank: int, world: int, samples: int, seed: int) -> list[tuple[int, int]]:
    """(epoch, sample) of the batch / world images that `rank` takes at `step`; `batch` is global."""
    share = batch // world
    first = step * batch + rank * share
    return [_sample_at(position, samples, seed) for position in range(first, first + share)]


def total_steps(epochs: int, batch: int, samples: int) -> int:
    """Steps until every sample was seen `epochs` times; the last batch may reach into one epoch more."""
    return -(-epochs * samples // batch)


@lru_cache(maxsize=4)
def shifts(samples: int, seed: int, epoch: int, reach: int) -> tuple[tuple[int, int], ...]:
    """For every sample its random (dy, dx) in that epoch, each from 0 to 2 * reach."""
    draw = Random(f"shift/{seed}/{epoch}").random
    width = 2 * reach + 1
    return tuple((int(draw() * width), int(draw() * width)) for _ in range(samples))


def _sample_at(position: int, samples: int, seed: int) -> tuple[int, int]:
    epoch, place = divmod(position, samples)
    return epoch, permutation(samples, f"{seed}/{epoch}")[place]
