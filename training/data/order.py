"""The order of the samples: pure functions of the seed and the position.

The epochs' permutations form an endless stream. A step takes the next `batch` positions of it. So every batch is full,
every sample occurs once per epoch even if the batch changes, and a resumed run sees the rest. Python promises that
`random.Random(text).random()` gives the same numbers in every version. NumPy's RandomState is frozen, and makes the
same numbers from the same state: those of ImageNet in milliseconds.
"""

from __future__ import annotations

from array import array
from functools import lru_cache
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from numpy import ndarray
    from numpy.random import RandomState


@lru_cache(maxsize=4)
def permutation(samples: int, key: str) -> array[int]:
    """The numbers 0 to samples - 1, sorted by a random number for each; `key` is the seed."""
    import numpy as np  # the login node imports this file

    order = np.argsort(generator(f"order/{key}").random_sample(samples), kind="stable")
    return array("I", order.astype(np.uintc).tobytes())


def generator(text: str) -> RandomState:
    """NumPy's generator in the state of `Random(text)`: it gives the same numbers, in order."""
    import numpy as np  # the login node imports this file

    _, state, _ = Random(text).getstate()
    twister = np.random.RandomState()
    twister.set_state(("MT19937", np.array(state[:-1], dtype=np.uint32), state[-1], 0, 0.0))
    return twister


@lru_cache(maxsize=2)
def draws(samples: int, key: str, columns: int) -> ndarray:
    """[samples, columns] random numbers from 0 to 1, without 1; `key` is the seed."""
    return generator(key).random_sample((samples, columns))


def rank_batch(seen: int, *, batch: int, rank: int, world: int, samples: int, seed: int) -> list[tuple[int, int]]:
    """(epoch, sample) of the batch / world samples that `rank` takes after `seen` samples; `batch` is global."""
    share = batch // world
    first = seen + rank * share
    return [_sample_at(position, samples, seed) for position in range(first, first + share)]


@lru_cache(maxsize=4)
def shifts(samples: int, seed: int, epoch: int, reach: int) -> tuple[tuple[int, int], ...]:
    """The random (dy, dx) of every sample in an epoch, each from 0 to 2 * reach."""
    draw = Random(f"shift/{seed}/{epoch}").random
    width = 2 * reach + 1
    return tuple((int(draw() * width), int(draw() * width)) for _ in range(samples))


def _sample_at(position: int, samples: int, seed: int) -> tuple[int, int]:
    epoch, place = divmod(position, samples)
    return epoch, permutation(samples, f"{seed}/{epoch}")[place]
