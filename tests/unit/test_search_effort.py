"""How much is computed to choose a grid and to place it, in counts: no time is measured."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.torus_cases import names, racks
from torusrun.orchestrator.cli.main import main
from torusrun.orchestrator.place.placement import arrange, choose, timing
from torusrun.orchestrator.place.placement.arrange import HUGE
from torusrun.orchestrator.place.placement.choose import choices
from torusrun.orchestrator.place.placement.fabric import Ways
from torusrun.orchestrator.run.plan import auto_grid

SITE = """scheduler: slurm
launcher: srun
node: {ranks: 4, gpus: 4, inter_node: 25GB/s}
topology: {source: names, pattern: 'g(?P<number>[0-9]+)', rack_nodes: 4, uplink: 1/4}
measured: {models: {resnet-digits: {image_us: 100}}}
"""


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any, str], list[None]]:
    """Counts the calls of a function of a module from now on."""

    def count(module: Any, name: str) -> list[None]:
        calls, kept = list[None](), getattr(module, name)

        def call(*args: Any, **options: Any) -> Any:
            calls.append(None)
            return kept(*args, **options)

        monkeypatch.setattr(module, name, call)
        return calls

    return count


@pytest.mark.parametrize("verb", ["predict", "plan"])
@pytest.mark.parametrize("grid", ["auto", "4x6"])
def test_a_verb_searches_the_grids_of_some_hosts_once(
    verb: str, grid: str, home: Path, tmp_path: Path, counted: Callable[[Any, str], list[None]]
) -> None:
    (tmp_path / "site.yaml").write_text(SITE)
    (tmp_path / "run.yaml").write_text(f"name: once\nsite: ./site.yaml\nnodes: 6\ngrid: {grid}\ntrain: {{batch: 48}}\n")
    (tmp_path / "hosts").write_text("g[1-8]")
    auto_grid._searched.cache_clear()
    searches = counted(auto_grid, "choices")
    assert main([verb, str(tmp_path / "run.yaml"), "--hosts", str(tmp_path / "hosts")]) == 0
    assert len(searches) == 1, "take the grids from auto_grid.best_grids, which keeps them"


def test_a_huge_cluster_is_placed_without_a_search_and_without_all_pairs_of_racks(
    counted: Callable[[Any, str], list[None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = [30 + rack % 5 for rack in range(HUGE // 30)]
    cluster, pairs, missing = racks(sizes, 0.5), list[None](), Ways.__missing__

    def count(ways: Ways, end: int) -> tuple[int, ...]:
        pairs.append(None)
        return missing(ways, end)

    monkeypatch.setattr(Ways, "__missing__", count)
    timings, searches = counted(timing, "timing"), counted(arrange, "_search")
    found = choices(names(cluster), 4, cluster, nodes=sum(sizes))
    assert len(found[0].arrangement.hosts) == sum(sizes) >= HUGE
    assert not searches and len(timings) <= 3, "a timing of 25,000 nodes takes a second"
    assert len(pairs) < len(timings) * len(sizes) ** 2 / 2, "each pair of racks takes a thousand times a thousand racks"


def test_many_nodes_are_searched_for_the_last_shapes_alone(counted: Callable[[Any, str], list[None]]) -> None:
    cluster = racks([34] * 8, 0.5)
    placed, searches = counted(choose, "arrange"), counted(arrange, "anneal")
    choices(names(cluster), 4, cluster)
    assert len(placed) <= 8 and len(searches) <= 2 * len(arrange.WEIGHTS)


def test_spares_that_cannot_be_better_are_not_placed(counted: Callable[[Any, str], list[None]]) -> None:
    cluster = racks([8] * 12, 0.25)
    placed = counted(arrange, "candidates")
    found = arrange.arrange((4, 88), names(cluster), 4, cluster, effort=0)
    assert len(found.spares) == 8 and len(placed) <= 3, "of 14 choices, most have a bound above the best cost"
