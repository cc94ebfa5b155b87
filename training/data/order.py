"""Which sample comes when: pure functions of the seed and the position, without torch.

The epochs' permutations follow one another in an endless stream. A step takes the next `batch` positions of it, so
every batch is full, every sample comes once per epoch even where the batch changes, and a resumed run sees the rest.
`random.Random(text).random()` is promised by Python to give the same numbers in every version.
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


def rank_batch(seen: int, *, batch: int, rank: int, world: int, samples: int, seed: int) -> list[tuple[int, int]]:
    """(epoch, sample) of the batch / world samples that `rank` takes when `seen` were taken; `batch` is global."""
    share = batch // world
    first = seen + rank * share
    return [_sample_at(position, samples, seed) for position in range(first, first + share)]


@lru_cache(maxsize=4)
def shifts(samples: int, seed: int, epoch: int, reach: int) -> tuple[tuple[int, int], ...]:
    """For every sample its random (dy, dx) in that epoch, each from 0 to 2 * reach."""
    draw = Random(f"shift/{seed}/{epoch}").random
    width = 2 * reach + 1
    return tuple((int(draw() * width), int(draw() * width)) for _ in range(samples))


def _sample_at(position: int, samples: int, seed: int) -> tuple[int, int]:
    epoch, place = divmod(position, samples)
    return epoch, permutation(samples, f"{seed}/{epoch}")[place]
