"""The exact plan in the run's folder: a later attempt reads it, so that sums keep their order."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from torusrun.training.files.trusted import put
from torusrun.training.reporting.output import warn
from torusrun.training.sync.plans import Layout

SCHEMA = 1
NAME = "buckets.json"  # beside the metrics
LARGEST_BYTES = 16_000_000


@dataclass(frozen=True)
class KeptPlan:
    """A layout, and the step of the training after which it is used."""

    after_step: int
    layout: Layout


def read(path: Path, made_for: Mapping[str, Any]) -> KeptPlan | None:
    """The plan in the file, None if there is no file. None too, with a message on stderr, if the file is not readable
    or its plan is for other ranks or another model than `made_for`."""
    if not path.exists():
        return None
    try:
        with open(path, "rb") as file:
            document = json.loads(file.read(LARGEST_BYTES))
        if document["schema"] != SCHEMA or document["made_for"] != made_for:
            _say(f"{path} is the plan of another model, or for other ranks")
            return None
        after_step, order, counts = document["after_step"], document["order"], document["buckets"]
        if not all(type(number) is int for number in (after_step, *order, *counts)):
            raise TypeError
        return KeptPlan(after_step, Layout(tuple(order), tuple(counts)))
    except (OSError, ValueError, KeyError, TypeError):
        _say(f"{path} does not hold a readable plan")
        return None


def write(path: Path, plan: KeptPlan, made_for: Mapping[str, Any], measured: Mapping[str, Any]) -> None:
    """Keep the plan, with the values `measured` for it. If the disk is full, training continues without the file."""
    layout = plan.layout
    document = {
        "schema": SCHEMA,
        "made_for": made_for,
        "after_step": plan.after_step,
        "order": layout.order,
        "buckets": layout.counts,
        **measured,
    }
    try:
        put(path, json.dumps(document).encode(), 0o644)
    except OSError as error:
        why = f"the plan of buckets could not be written to {path}: {error.strerror or error}"
        warn(f"training: {why}; a resumed attempt measures again, and its sums may have another order")


def agreed_plan(plan: KeptPlan | None, gradients: int, device: torch.device) -> KeptPlan | None:
    """Rank 0's `plan` on every rank; all must call it together. It travels as numbers: pickles would run code."""
    sent = torch.full((2 + 2 * gradients,), -1, dtype=torch.int64, device=device)
    if plan:
        numbers = [plan.after_step, len(plan.layout.counts), *plan.layout.order, *plan.layout.counts]
        sent[: len(numbers)] = torch.tensor(numbers, device=device)
    dist.broadcast(sent, 0)
    after_step, buckets, *numbers = sent.tolist()
    if after_step < 0:
        return None
    return KeptPlan(after_step, Layout(tuple(numbers[:gradients]), tuple(numbers[gradients : gradients + buckets])))


def _say(what: str) -> None:
    warn(f"training: {what}; gradients are measured again")
