"""Rate, batch and image size of every step of every recipe, against tables written here in their published form."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from torusrun.training.progress import Progress
from torusrun.training.recipe.files import load, names
from torusrun.training.schedule import Course

IMAGES = 1_281_167


class Step(NamedTuple):
    rate: float
    batch: int
    size: int
    decay: float = -1.0  # not compared


Table = Callable[[int, float], Step]
"""The step of an iteration, which begins at an epoch; both count from 0."""


def facebook(iteration: int, epoch: float) -> Step:
    """Goyal et al. 2017: eta = 0.1 kn / 256, warm-up in each iteration, x 0.1 at epochs 30, 60 and 80."""
    eta, warmup = 0.1 * 8192 / 256, 5 * IMAGES / 8192
    if iteration < warmup:
        return Step(0.1 + (eta - 0.1) * iteration / warmup, 8192, 224, 1e-4)
    return Step(eta * 0.1 ** sum(epoch >= drop for drop in (30, 60, 80)), 8192, 224, 1e-4)


def pfn(iteration: int, epoch: float) -> Step:
    """Akiba et al. 2017: eta_base = 0.1 b / 256, its half for 40 epochs, then 0.075, 0.01, 0.001 for 30, 15, 5."""
    factor = 0.5 if epoch < 40 else 0.075 if epoch < 70 else 0.01 if epoch < 85 else 0.001
    return Step(factor * 0.1 * 32768 / 256, 32768, 224)


def fastai(iteration: int, epoch: float) -> Step:
    """train.py, 16 machines of 8 GPUs: lr = 0.235 * 8, (first epoch, last), (rate, rate), batch of a GPU, size."""
    lr = 0.235 * 8
    rows = [
        ((0, 6), (lr, lr * 2), 64, 128),
        ((6, 16), (lr * 2, lr * 2), 128, 128),
        ((16, 19), (lr, lr), 64, 224),
        ((19, 31), (2 * lr / (10 / 1.5),) * 2, 192, 224),
        ((31, 37), (2 * lr / (100 / 1.5),) * 2, 192, 224),
        ((37, 38), (2 * lr / 100,) * 2, 128, 288),
        ((38, 50), (2 * lr / 1000,) * 2, 128, 288),
    ]
    ((first, last), (begin, end), batch, size) = next(row for row in rows if epoch < row[0][1])
    return Step(begin + (end - begin) * (epoch - first) / (last - first), batch * 128, size, 1e-4)


def nvidia(iteration: int, epoch: float) -> Step:
    """PolySchedule of common/fit.py, for 22 steps in an epoch; MXNet gives it iteration + 1."""
    warmup, total, end = 33 * 22, 90 * 22, 0.0001
    if iteration <= warmup:
        return Step(40.7 * (iteration / warmup), 1536 * 39, 224, 2e-4)
    done = (iteration - warmup) / (total - warmup)
    return Step(end + (40.7 - end) * (1 - done) ** 2, 1536 * 39, 224, 2e-4)


def fujitsu(iteration: int, epoch: float) -> Step:
    """540 steps of warm-up, 780 of decay with power 2.2 to 0.0025 of the rate, the rest at that."""
    if iteration < 540:
        rate = 13.0 * iteration / 540
    else:
        left = 1 - min(1.0, (iteration - 540) / 780)
        rate = 13.0 * (0.0025 + (1 - 0.0025) * left**2.2)
    return Step(rate, 2048 * 42, 224, 5e-5)


def google(iteration: int, epoch: float) -> Step:
    """poly_rate_schedule of lars_util.py; tf.train.polynomial_decay ends at 0.0001. The loss and LARS decay by 1e-4."""
    warmup_steps = 25 * IMAGES // 32768
    decay_steps = 2983 - warmup_steps + 1
    if iteration * 32768 / IMAGES <= 25:
        return Step(31.2 * (iteration * 32768 / IMAGES) / 25, 32768, 224, 2e-4)
    step = max(1, iteration - warmup_steps)
    return Step((31.2 - 0.0001) * (1 - step / decay_steps) ** 2 + 0.0001, 32768, 224, 2e-4)


class Solver(NamedTuple):
    """A solver.prototxt of SURFsara's Caffe."""

    max_iter: int
    base_lr: float
    power: int
    lr_iter: int
    warmup_iter: int = 0
    warmup_start_lr: float = 0.0
    weight_decay: float = 0.00005


def collapse(base_lr: float) -> Solver:
    return Solver(1560, base_lr, 2, 1560, weight_decay=0.0002)


SOLVERS = [
    Solver(7800, 1.6, 1, 18720, 1560, 0.1),
    Solver(3750, 1.02, 2, 7500),
    collapse(0.255),  # not in the release: as the one that is, from a quarter of the cycle's rate
    Solver(4750, 0.764, 2, 7500, 1000, 0.255),
    collapse(0.191),  # the same
    Solver(4750, 0.572, 2, 7500, 1000, 0.19),
    collapse(0.143),
]


def surfsara(iteration: int, epoch: float) -> Step:
    """sgd_solver.cpp: GetWarmUpLR, then poly or poly_cyc, which count from the solver's iteration 0."""
    for solver in SOLVERS:
        if iteration < solver.max_iter:
            break
        iteration -= solver.max_iter
    warmup = solver.warmup_iter
    if iteration < warmup:
        rate = (iteration * solver.base_lr + (warmup - iteration) * solver.warmup_start_lr) / warmup
    else:
        rate = solver.base_lr * (1.0 - iteration / solver.lr_iter) ** solver.power
    return Step(rate, 4096, 224, solver.weight_decay)


def tencent(iteration: int, epoch: float) -> Step:
    """Derived: NVIDIA's curve, from its rate by the square root of the batch, rounded."""
    if epoch < 33:
        return Step(42.6 * epoch / 33, 65536, 224)
    return Step(0.0001 + (42.6 - 0.0001) * ((90 - epoch) / 57) ** 2, 65536, 224)


def sony_224(iteration: int, epoch: float) -> Step:
    """Derived rates; the batch doubles at epoch 30, from memory."""
    rate = 3.1 * epoch / 5 if epoch < 5 else 3.1 * ((90 - epoch) / 85) ** 2
    return Step(rate, 2176 * 16 if epoch < 30 else 2176 * 32, 224)


def sony_122(iteration: int, epoch: float) -> Step:
    """Derived rates, and batches: from version 1's 34K to the published 54K."""
    rate = 3.09 * epoch / 5 if epoch < 5 else 3.09 * ((90 - epoch) / 85) ** 2
    return Step(rate, 3456 * 10 if epoch < 30 else 3456 * 16, 224)


TABLES: dict[str, tuple[Table, int, int]] = {  # the table, images in an epoch, iterations
    "sony-224s": (sony_224, IMAGES, 2208),
    "sony-122s": (sony_122, IMAGES, 2503),
    "fujitsu-70s": (fujitsu, 15 * 86016, 1350),
    "surfsara-28min": (surfsara, IMAGES, 25649),
    "fastai-18min": (fastai, IMAGES, 4145),
    "facebook-1h": (facebook, IMAGES, 14076),
    "pfn-15min": (pfn, IMAGES, 3519),
    "tencent-6min": (tencent, IMAGES, 1760),
    "nvidia-80s": (nvidia, 22 * 59904, 1980),
    "google-77s": (google, IMAGES, 2972),
}


def steps(name: str) -> Iterator[tuple[float, Step]]:
    """The epoch at which each step of a recipe begins, and what the training does in it."""
    recipe, progress = load(name), Progress()
    course = Course(recipe.train, recipe.scale.epoch_samples)
    while not course.finished(progress):
        batch, view = course.batch_at(progress), course.view_at(progress)
        rate = course.rate_at(course.moment_at(progress))
        epoch = progress.samples / recipe.scale.epoch_samples
        yield epoch, Step(rate, batch, view.size or 0, course.weight_decay_at(progress))
        progress = progress.after(batch)


@pytest.mark.parametrize("name", names())
def test_every_step_is_that_of_the_published_table(name: str) -> None:
    table, epoch_samples, iterations = TABLES[name]
    assert load(name).scale.epoch_samples == epoch_samples
    count = 0
    for epoch, step in steps(name):
        wanted = table(count, epoch)
        same_rate = math.isclose(step.rate, wanted.rate, rel_tol=1e-9, abs_tol=1e-12)
        same_decay = step.decay == wanted.decay or wanted.decay < 0
        assert same_rate and same_decay and step[1:3] == wanted[1:3], f"iteration {count}: {step}, not {wanted}"
        count += 1
    assert count == iterations


def test_the_crops_of_fujitsu_and_fastai_change_and_surfsaras_collapses_are_branches_of_their_own() -> None:
    """In Fujitsu's HybridCvalPipe the short side has 256 pixels, of which 224 are seen."""
    recipe = load("fujitsu-70s")
    course = Course(recipe.train, recipe.scale.epoch_samples)
    views = [course.view_at(Progress(0, epoch * 1290240 + n)) for epoch, n in ((0, 0), (85, -1), (85, 0), (89, 0))]
    assert [view.augment for view in views] == [True, True, False, False]
    assert {(view.area, int(224 * view.test_margin)) for view in views} == {((0.05, 0.9), 256)}
    fastai_course = Course(load("fastai-18min").train, IMAGES)
    seen = [fastai_course.view_at(Progress(0, 37 * IMAGES + n)) for n in (-1, 0)]
    assert [(view.area, view.rectangular) for view in seen] == [((0.08, 1.0), False), ((0.5, 1.0), True)]
    phases = load("surfsara-28min").train.phases
    assert [number for number, phase in enumerate(phases) if phase.collapse] == [3, 6, 9]


# By the code of each: the margin's short side for 224 pixels, and the start of the weights.
@pytest.mark.parametrize(
    ("name", "short", "init", "zero_bias", "zero_gamma"),
    [
        ("nvidia-80s", 256, "he-fan-in", True, False),
        ("fujitsu-70s", 256, "he-fan-in", True, False),
        ("google-77s", 256, "lecun-normal", True, True),
        ("fastai-18min", 255, "he-fan-out", False, True),
        ("surfsara-28min", 256, "he-fan-in", True, False),
    ],
)
def test_what_code_says_of_images_and_weights_is_in_the_recipe(
    name: str, short: int, init: str, zero_bias: bool, zero_gamma: bool
) -> None:
    train = load(name).train
    start = {"init": init, "last_std": 0.01, "zero_bias": zero_bias, "zero_gamma": zero_gamma, "version": "v1.5"}
    assert {key: value for key, value in train.model.options.items() if key != "channels_last"} == start
    assert int(224 * train.data.test_margin) == short
