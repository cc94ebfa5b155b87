"""What checkpoints cost, by a run and its site."""

from __future__ import annotations

import pytest

from torusrun.orchestrator.forecast.checkpoints import Saving, cost, in_memory, mean_time_to_failure_s
from torusrun.orchestrator.predict.words import checkpoints_line, checkpoints_line_without_rate


def test_metas_jobs_fail_as_often_as_published_and_nodes_as_often_as_the_site_says() -> None:
    assert mean_time_to_failure_s(None, 128, 1024) == pytest.approx(7.9 * 3600)
    assert mean_time_to_failure_s(None, 1, 4) == pytest.approx(256 * 7.9 * 3600)
    assert mean_time_to_failure_s(86400.0, 4, 32) == 21600.0


def test_the_line_names_interval_cost_source_and_share() -> None:
    said = checkpoints_line(cost(Saving(0.05, True, None, 7.9 * 3600), 0.03))
    assert said == "every 53.3 s by Daly's rule (a failure in 7.9 h), 50.00 ms each (measured), 0.094 % of the time"
    named = Saving(0.05, False, 20, 1e7)
    assert checkpoints_line(cost(named, 0.1)) == (
        "every 2.0 s as the run names it (a failure in 116 days), 50.00 ms each (predicted), 2.4 % of the time"
    )
    assert checkpoints_line_without_rate(named) == "every 20 steps, 50.00 ms each (predicted)"


def test_the_line_says_what_copies_in_memory_cost() -> None:
    copies = in_memory(25e6)
    assert copies.bytes == 2 * 8 * 25e6, "two copies of weights and velocities"
    saving = Saving(0.05, False, 20, 1e7, copies)
    said = "; after each step a copy in memory, 52.00 ms (predicted), 34 % of the time, 381M of each node"
    assert checkpoints_line(cost(saving, 0.1)).endswith(said)
    assert checkpoints_line_without_rate(saving).endswith("a copy in memory, 52.00 ms (predicted), 381M of each node")
