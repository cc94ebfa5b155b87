"""The throughput that logs of MLPerf Training imply, for published.yaml: `python -m benchmarks.published.mlperf LOG...`

The logs are those of one system, as NVIDIA/results/SYSTEM/resnet/result_*.txt of mlcommons/training_results_v4.0.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from torusrun.orchestrator.forecast import epochs

MARK = ":::MLLOG "


@dataclass(frozen=True)
class Log:
    """One training: its batch, the milliseconds of its epochs and of the whole, and those of an epoch in each block.

    A block of epochs ends with its evaluation.
    """

    batch: int
    epochs_ms: tuple[int, ...]
    run_ms: int
    blocks_ms: tuple[float, ...]


def read(text: str) -> Log:
    """A log. Raises ValueError for one that lacks the batch, an epoch after the first, or the end."""
    times: dict[str, list[int]] = {}
    batch = in_block = 0
    blocks_ms = []
    for event in _events(text):
        key, at_ms = event["key"], event["time_ms"]
        times.setdefault(key, []).append(at_ms)
        batch = event["value"] if key == "global_batch_size" else batch
        in_block = 0 if key == "block_start" else in_block + (key == "epoch_stop")
        if key == "eval_start" and in_block and "block_start" in times:
            blocks_ms.append((at_ms - times["block_start"][-1]) / in_block)
    begins, ends = times.get("epoch_start", []), times.get("epoch_stop", [])
    if not batch or len(ends) < 2 or "run_stop" not in times:
        raise ValueError("it is not a whole log of MLPerf: global_batch_size, epoch_stop or run_stop is missing")
    each = tuple(end - begin for begin, end in zip(begins, ends, strict=True))
    return Log(batch, each, times["run_stop"][0] - times["run_start"][0], tuple(blocks_ms))


def images_per_s(parts_ms: Iterable[Sequence[float]]) -> float:
    """The images of an epoch over the median time of one, by the epochs or blocks of each log without its first."""
    return 1e3 * epochs.images() / median(part_ms for of_log in parts_ms for part_ms in of_log[1:])


def _events(text: str) -> Iterator[dict[str, Any]]:
    for line in text.splitlines():
        _, mark, event = line.partition(MARK)
        if mark:
            yield json.loads(event)


def main(paths: list[str]) -> None:
    logs = [read(Path(path).read_text(encoding="utf-8")) for path in paths]
    for path, log in zip(paths, logs, strict=True):
        print(f"{path}: batch {log.batch:,}, {len(log.epochs_ms)} epochs, {log.run_ms / 1e3:.1f} s")
    print(f"{images_per_s(log.epochs_ms for log in logs):,.0f} images/s by epochs, without the first of each")
    print(f"{images_per_s(log.blocks_ms for log in logs):,.0f} images/s from the start of a block to its evaluation")


if __name__ == "__main__":
    main(sys.argv[1:])
