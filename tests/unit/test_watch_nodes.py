"""The table of the nodes of a run: what it shows at 80 and 200 columns, its order, and the rank that is waited for."""

from __future__ import annotations

from dataclasses import replace

from torusrun.orchestrator.base.shown.numbers import seconds, size
from torusrun.orchestrator.run.folder.at_work import GpuLoad, NodeLoad, RankSteps
from torusrun.orchestrator.show.screen.nodes import NodeHeard, ordered, table

GIB = 2.0**30


def node(number: int, computed: float = 0.3, heard_s: float | None = 3.0) -> NodeHeard:
    """One of nodes with two GPUs and two ranks, whose first rank computes `computed` of a step of a second."""
    first = 2 * number
    ranks = (RankSteps(first, 998.0, 120, 1.0, 1.5, 1 - computed), RankSteps(first + 1, 998.0, 120, 1.0, 1.5, 0.75))
    gpus = tuple(GpuLoad(n, 0.9 + n / 100, (10 + n) * GIB, 32 * GIB, 250.0) for n in range(2))
    load = NodeLoad(1000.0, 5.0, 20, 0.456, 50 * GIB, 384 * GIB, gpus, ranks)
    return NodeHeard(f"g{number:04d}", [first, first + 1], heard_s, 1.0, load)


def lines(nodes: list[NodeHeard], width: int, *, ranks: bool = False) -> list[str]:
    return table(nodes, width, ranks=ranks).lines(width)


def test_a_wide_terminal_shows_all() -> None:
    titles, row = lines([node(0)], 200)
    assert " ".join(titles.split()) == "NODE CPU MEMORY GPU GPU MEM WATTS STEP S COMPUTE S WAIT HEARD"
    assert row.split()[:9] == [
        "g0000", "46%", "50G/384G", "90%", "11G/32G", "500", "1.000", "0.300", "70%",
    ]  # fmt: skip
    assert row.endswith("3s ago, wrote 1s ago, ranks 0, 1")


def test_columns_are_left_out_of_which_nothing_is_known_or_that_a_gpu_hides() -> None:
    bare = node(0)
    assert bare.load is not None
    cpu = replace(bare, load=replace(bare.load, gpus=(), ranks=()))
    assert lines([cpu], 200)[0].split() == ["NODE", "CPU", "MEMORY", "HEARD"]
    assert lines([replace(bare, load=None)], 200)[0].split() == ["NODE", "HEARD"]
    gpu = node(0)
    assert gpu.load is not None
    on_gpu = replace(gpu, load=replace(gpu.load, ranks=tuple(replace(rank, waited=None) for rank in gpu.load.ranks)))
    titles, _ = lines([on_gpu], 200)
    assert "STEP S" in titles and "COMPUTE" not in titles


def test_each_rank_has_a_line_and_its_own_gpu() -> None:
    _, _, first, second = lines([node(1)], 200, ranks=True)
    assert first.split()[:4] == ["rank", "2", "-", "-"] and first.split()[4] == "90%" and second.split()[4] == "91%"
    assert first.endswith("at step 120, reported 2s earlier")


def test_silent_nodes_come_first_and_then_those_for_which_others_wait() -> None:
    nodes = [node(0), node(1), node(2), node(3, heard_s=95.0), node(4, heard_s=None), node(5)]
    assert [found.host for found in ordered(nodes, ["g0002"])] == ["g0004", "g0003", "g0002", "g0000", "g0001", "g0005"]
    assert replace(nodes[3], of_hosts=2000).silent is False, "each of 2,000 hosts gives a sign of life every 40 s"


def test_sizes_are_short_and_seconds_have_as_many_columns_from_step_to_step() -> None:
    sizes = {0: "0", 999: "999", 1000: "1.0K", 10 * 1024: "10K", 1.26e9: "1.2G", 999.6 * 2**20: "1.0G", 3e15: "2728T"}
    assert {count: size(count) for count in sizes} == sizes
    times = {0.0: "0.0000", 0.01234: "0.0123", 0.25: "0.250", 2.5: "2.500", 123.4: "123"}
    assert {value: seconds(value) for value in times} == times
