"""Which sample comes when: pure functions of the seed and the position.

The epochs' permutations follow one another in an endless stream. A step takes the next `batch` positions of it, so
every batch is full, every sample comes once per epoch even where the batch changes, and a resumed run sees the rest.
`random.Random(text).random()` is promised by Python to give the same numbers in every version. NumPy's RandomState is
frozen, and makes the same numbers of the same state: those of ImageNet in milliseconds.
"""

from __future__ import annotations

from array import array
from functools import lru_cache
from random import Random


@lru_cache(maxsize=4)
def permutation(samples: int, key: str) -> array[int]:
    """The numbers 0 to samples - 1 in the order that `key` stands for: that of a random number drawn for each."""
    import numpy as np  # the login node imports this file

    _, state, _ = Random(f"order/{key}").getstate()
    twister = np.random.RandomState()
    twister.set_state(("MT19937", np.array(state[:-1], dtype=np.uint32), state[-1], 0, 0.0))
    order = np.argsort(twister.random_sample(samples), kind="stable")
    return array("I", order.astype(np.uintc).tobytes())


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
