"""How fast variants of a training are beside each other: by precision, layout and torch.compile, on one measured card.

Source: data/programs.yaml. What was not measured is made of what was: a layout or torch.compile has the effect that it
has in bf16, and a precision without matrix units is as fast as fp32. Every such step is a doubt.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Literal

from torusrun.orchestrator.predict.model import constants
from torusrun.orchestrator.predict.model.interval import Factor, Interval
from torusrun.training.recipe.variant import Variant

Where = Literal["host", "gpu", "processor"]
OTHER_HOST = "the rate is that of torusrun on one card of this type, with other versions"
OTHER_PROGRAM = "{} beside {} was measured on another GPU (`torusrun calibrate` measures yours)"
NOT_MEASURED = "{} was measured nowhere: it is made of the effects of its parts"
PROCESSOR = "how fast {} is beside {} on these processors is unknown (`torusrun calibrate` measures it)"
PASSES = "the fixed time of each of {} backward passes in a step is not measured"


def images_per_s(chosen: Variant, units: Collection[str]) -> float:
    """Images per second of one pass on the measured card, if it had matrix units for these precisions alone."""
    one = _with_units(chosen, units)
    if (known := _known(one)) is not None:
        return known
    rate = _rate(Variant(one.precision))
    if one.channels_first:
        rate *= _rate(Variant("bf16", channels_first=True)) / _rate(Variant("bf16"))
    return rate * (_rate(Variant("bf16", compiled=True)) / _rate(Variant("bf16")) if one.compiled else 1.0)


def factors(known: Variant, chosen: Variant, units: Collection[str], where: Where) -> tuple[Factor, ...]:
    """The doubts of a rate for `chosen` that was made of a rate for `known`, in the place that is predicted."""
    found = []
    same = replace(known, passes=1) == replace(chosen, passes=1)
    if where == "host":
        found.append(_around(OTHER_HOST, "other_host"))
    elif not same and where == "gpu":
        found.append(_around(OTHER_PROGRAM.format(_words(chosen), _words(known)), "other_gpu"))
    elif not same:
        found.append(_around(PROCESSOR.format(_words(chosen), _words(known)), "processor"))
    if where != "processor" and _known(_with_units(chosen, units)) is None:
        found.append(_around(NOT_MEASURED.format(_words(chosen)), "not_measured"))
    return tuple(found)


def _with_units(chosen: Variant, units: Collection[str]) -> Variant:
    precision = chosen.precision if chosen.precision in units else "fp32"
    return replace(chosen, precision=precision, passes=1)


def _words(chosen: Variant) -> str:
    return str(replace(chosen, passes=1))


def _known(chosen: Variant) -> float | None:
    written = constants.table("programs")["images_per_s"].get(str(chosen))
    return constants.number(written) if written else None


def _rate(chosen: Variant) -> float:
    rate = _known(chosen)
    assert rate is not None, f"data/programs.yaml lacks {chosen}"
    return rate


def _around(why: str, name: str) -> Factor:
    times = constants.number(constants.table("programs")[name])
    return Factor(why, Interval(1 / times, times))
