"""One run on one site has one grid, one order of its hosts and one forecast, whichever verb is used, and in the job."""

from __future__ import annotations

import contextlib
import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from torusrun.orchestrator.cli.dry_run import dry_run
from torusrun.orchestrator.cli.main import main
from torusrun.orchestrator.place.cost.shapes import shapes
from torusrun.orchestrator.run.plan.forecast import forecast_at_submit
from torusrun.orchestrator.run.plan.host_order import ordered
from torusrun.orchestrator.run.plan.plan import plan

SITE = """scheduler: slurm
launcher: srun
node: {{ranks: {ranks}, gpus: {gpus}, inter_node: 25GB/s}}
{topology}
measured: {{models: {{resnet-digits: {{image_us: 100}}}}}}
"""
TOPOLOGIES = {
    "none": "",
    "names": "topology: {{source: names, pattern: 'g(?P<number>[0-9]+)', rack_nodes: {rack}, uplink: {uplink}}}",
    "switches": "topology: {{source: switches, uplink: {uplink}, switches: {{a: 'g[1-{rack}]', b: 'g[{next}-12]'}}}}",
}
SYNCS = st.sampled_from(
    [
        "all_reduce: auto", "all_reduce: torus", "all_reduce: flat", "all_reduce: hierarchical", "all_reduce: hybrid",
        "all_reduce: ddp", "buckets: one", "buckets: fujitsu", "wire: fp32",
    ]
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A site, a run there, and the hosts that --hosts names; `grid` is 'auto' or one that fits."""

    site: str
    nodes: int
    ranks: int
    grid: str
    sync: str
    hosts: tuple[str, ...]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    ranks, nodes, rack = draw(st.sampled_from([1, 2, 4])), draw(st.integers(1, 6)), draw(st.integers(2, 5))
    text = TOPOLOGIES[draw(st.sampled_from(sorted(TOPOLOGIES)))]
    topology = text.format(rack=rack, next=rack + 1, uplink=draw(st.sampled_from(["1/1", "1/3", "1/8"])))
    dims = draw(st.sampled_from([(), *shapes(ranks * nodes)]))
    spares = draw(st.integers(0, 2))
    names = draw(st.permutations([f"g{number}" for number in range(1, 13)]))[: nodes + spares]
    return Case(
        SITE.format(ranks=ranks, gpus=draw(st.sampled_from([0, ranks])), topology=topology),
        nodes,
        ranks * nodes,
        "x".join(map(str, dims)) or "auto",
        draw(SYNCS),
        tuple(names),
    )


# The named grid leaves three hosts of each rack; four and two have another best grid.
LEFT = Case(
    SITE.format(ranks=1, gpus=0, topology=TOPOLOGIES["switches"].format(rack=4, next=5, uplink="1/8")),
    6,
    6,
    "2x3",
    "all_reduce: torus",
    tuple(f"g{number}" for number in range(1, 8)),
)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cases())
@example(LEFT)
def test_every_verb_and_the_job_have_one_answer(home: Path, tmp_path: Path, case: Case) -> None:
    run_file, hosts_file = tmp_path / "run.yaml", tmp_path / "hosts"
    (tmp_path / "site.yaml").write_text(case.site + f"runs: {tmp_path}/runs\n")
    run_file.write_text(
        f"name: one\nsite: ./site.yaml\nnodes: {case.nodes}\ngrid: {case.grid}\n"
        f"train: {{batch: {2 * case.ranks}, sync: {{{case.sync}}}}}\n"
    )
    hosts_file.write_text("\n".join(case.hosts))
    planned = plan(run_file)
    before, predicted_before = answer("plan", run_file), answer("predict", run_file)
    assert before["prediction"] == predicted_before
    assert before["grid"] == predicted_before["grid"] == list(dry_run(planned).placement.grid.dims)
    kept = forecast_at_submit(planned)
    assert kept and (list(kept.grid), kept.total_s) == (before["grid"], predicted_before["total_s"])

    predicted, job = answer("predict", run_file, "--hosts", hosts_file), ordered(planned, case.hosts)
    assert list(job.plan.grid.dims) == predicted["grid"]
    for found in (predicted, predicted_before):
        assert case.grid != "auto" or (found["grid"], found["all_reduce_s"]) == best_of(found)
    if planned.site.topology:
        shown = answer("plan", run_file, "--hosts", hosts_file)
        assert shown["prediction"] == predicted and shown["grid"] == predicted["grid"]
        placement = shown["placement"]
        assert [placement["grids"][0]["dims"], placement["grids"][0]["all_reduce_s"]] == list(best_of(predicted))
        assert placement["orders"][0]["all_reduce_s"] == predicted["all_reduce_s"]
        assert placement["hosts"] == list(job.hosts)


def best_of(found: dict[str, Any]) -> tuple[list[int], float]:
    return found["best_grid"], found["best_grid_all_reduce_s"]


def answer(*words: object) -> dict[str, Any]:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert main([*map(str, words), "--json"]) == 0
    found: dict[str, Any] = json.loads(out.getvalue())
    return found


@pytest.mark.parametrize("gpus", [0, 4])
@pytest.mark.parametrize("options", [[], ["--network", "local"], ["--network", "abci-v"]])
def test_auto_on_one_node_is_the_best_grid_of_one_level(
    home: Path, tmp_path: Path, gpus: int, options: list[str]
) -> None:
    (tmp_path / "site.yaml").write_text(SITE.format(ranks=4, gpus=gpus, topology=""))
    (tmp_path / "run.yaml").write_text("name: one\nsite: ./site.yaml\ntrain: {batch: 64}\n")
    found = answer("predict", tmp_path / "run.yaml", *options)
    assert (found["grid"], found["best_grid"]) == ([4], [4])
    row = answer("predict", tmp_path / "run.yaml", *options, "--set", "grid=4x1")
    assert row["best_grid"] == [4] and row["all_reduce_s"] >= row["best_grid_all_reduce_s"]


@pytest.mark.parametrize("nodes", [256, 512])
def test_the_best_grid_of_many_gpus_is_the_same_in_every_verb(home: Path, tmp_path: Path, nodes: int) -> None:
    """The site and the network of this name have the same links, and no racks."""
    (tmp_path / "run.yaml").write_text(
        f"name: one\nsite: slurm-v100\nnodes: {nodes}\n"
        f"train: {{batch: {128 * nodes}, precision: fp16, sync: {{wire: fp16}}}}\n"
    )
    predicted = ("predict", tmp_path / "run.yaml", "--workload", "resnet50")
    best = answer(*predicted)["best_grid"]
    assert answer(*predicted, "--network", "slurm-v100")["best_grid"] == best
    (size,) = answer(*predicted, "--nodes", nodes)["forecasts"]
    assert size["grid"] == best
