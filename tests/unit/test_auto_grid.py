"""`grid: auto`: every verb and the job take the same grid on the same hosts, and a resumed run keeps it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.verbs import Capsys, prints
from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.base.json_files import write_json
from torusrun.orchestrator.cli.dry_run import dry_run
from torusrun.orchestrator.cli.main import main
from torusrun.orchestrator.forecast.workload import workload_of
from torusrun.orchestrator.keys.site import Site
from torusrun.orchestrator.keys.topology import Topology
from torusrun.orchestrator.place.placement.choose import GRADIENT_BYTES, choices
from torusrun.orchestrator.run.folder import ledger
from torusrun.orchestrator.run.folder.events import Changes, Event, Started, Submitted, Submitting
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.plan import plan_files
from torusrun.orchestrator.run.plan.attempt_plan import AttemptPlan, changes, derive, with_former_grid
from torusrun.orchestrator.run.plan.auto_grid import with_expected_grid
from torusrun.orchestrator.run.plan.host_order import ordered
from torusrun.orchestrator.run.plan.plan import Plan, plan
from torusrun.orchestrator.run.plan.rates import gradient_of
from torusrun.orchestrator.run.state.poll import views
from torusrun.orchestrator.schedulers.topology import cluster, expected
from torusrun.orchestrator.show.listing import listing
from torusrun.orchestrator.show.placement import outlook
from torusrun.orchestrator.show.screen.printed import end_rows

SITE = """scheduler: slurm
launcher: srun
node: {ranks: 4, gpus: 4, inter_node: 25GB/s}
topology: {source: names, pattern: 'g(?P<number>[0-9]+)', rack_nodes: 4, uplink: 1/4}
"""
RUN = "name: torus\nsite: ./site.yaml\nnodes: 8\ntrain: {batch: 64}\n"
HOSTS = [f"g{number:04}" for number in (9, 1, 7, 2, 3, 8, 5, 6)]  # of three racks


@pytest.fixture
def run_file(home: Path, tmp_path: Path) -> Path:
    (tmp_path / "site.yaml").write_text(SITE + f"runs: {tmp_path}/runs\n")
    (tmp_path / "run.yaml").write_text(RUN)
    (tmp_path / "hosts").write_text("\n".join(HOSTS))
    return tmp_path / "run.yaml"


@pytest.fixture
def auto(run_file: Path) -> Plan:
    return plan(run_file)


@pytest.mark.parametrize(
    ("keys", "nodes"),
    [("grid: 4x3", 3), ("grid: 4x2x2", 4), ("grid: 2x2", 1), ("grid: auto", 1), ("grid: 2x2\nranks_per_node: 1", 4)],
)
def test_a_run_without_nodes_asks_for_as_many_as_its_grid_fills(run_file: Path, keys: str, nodes: int) -> None:
    run_file.write_text(RUN.replace("nodes: 8", keys).replace("batch: 64", "batch: 48"))
    assert plan(run_file).run.nodes == nodes


def test_nodes_that_do_not_fit_the_grid_are_reported(run_file: Path) -> None:
    for keys in ("nodes: 1\ngrid: 4x3", "grid: 3x2"):
        run_file.write_text(RUN.replace("nodes: 8", keys).replace("batch: 64", "batch: 48"))
        with pytest.raises(UserError, match="'grid'"):
            plan(run_file)


def test_every_verb_and_the_job_take_the_best_grid_for_the_hosts(auto: Plan, run_file: Path, capsys: Capsys) -> None:
    known = cluster(auto.site, HOSTS)
    assert known
    size_bytes, _ = gradient_of(auto)
    choice, *_ = choices(HOSTS, 4, known, size_bytes, "nccl", 8)
    job = ordered(auto, HOSTS)
    assert job.plan.grid.dims == choice.dims and sorted(job.hosts) == sorted(HOSTS) and not job.unordered
    assert job.plan == ordered(auto, list(reversed(HOSTS))).plan, "the order in which hosts are listed does not matter"
    assert outlook(auto, HOSTS).plan.chosen == job.plan.chosen
    assert job.plan.chosen and job.plan.chosen.reason == (
        f"auto: {choice.reason}; for {size_bytes / 1e6:.3g} MB (the gradients of resnet-digits) on these 8 hosts"
    )
    shown = json.loads(prints(capsys, "plan", str(run_file), "--hosts", str(run_file.parent / "hosts"), "--json"))
    assert (tuple(shown["grid"]), shown["grid_reason"]) == (choice.dims, job.plan.chosen.reason)
    assert shown["spec"]["grid"] == "auto"
    assert main(["plan", str(run_file), "--hosts", str(run_file.parent / "hosts")]) == 0
    assert f"grid        {job.plan.grid}: {job.plan.grid.words}\n            auto: " in capsys.readouterr().out


def test_a_grid_that_the_run_names_is_used_unchanged(run_file: Path) -> None:
    for text, dims in (("32", (32,)), ("4x8", (4, 8)), ("4x4x2", (4, 4, 2)), ("1x1x32", (1, 1, 32))):
        named = plan(run_file, settings=[f"grid={text}"])
        job = ordered(named, HOSTS)
        assert job.plan == named and named.grid.dims == dims and sorted(job.hosts) == sorted(HOSTS)
        assert with_expected_grid(named) == named


def test_of_more_hosts_than_the_run_takes_the_best_are_used(auto: Plan) -> None:
    few = replace(auto, run=replace(auto.run, nodes=4))
    job = ordered(few, HOSTS)
    assert job.plan.grid.ranks == 16 and set(job.hosts) == {"g0005", "g0006", "g0007", "g0008"}, "a rack of their own"


def test_before_the_hosts_are_known_whole_racks_are_assumed(auto: Plan, capsys: Capsys) -> None:
    found = with_expected_grid(auto)
    racks = [f"g{number:04}" for number in range(1, 9)]
    assert found.grid == ordered(auto, racks).plan.grid
    assert found.chosen and found.chosen.reason.endswith(
        "on 2 racks of 4 nodes, if the site has so many; the job chooses again for its hosts"
    )
    assert with_expected_grid(found) is found
    assert found.chosen.reason in " ".join(prints(capsys, "plan", f"{auto.folder.parents[1]}/run.yaml").split())


def test_without_a_topology_or_with_one_that_does_not_match_all_hosts_are_below_one_switch(auto: Plan) -> None:
    blind = replace(auto, site=replace(auto.site, topology=None))
    job = ordered(blind, HOSTS)
    assert list(job.hosts) == HOSTS and not job.unordered
    assert job.plan.chosen and "on hosts below one switch, since the site has no topology" in job.plan.chosen.reason
    assert with_expected_grid(blind).grid == job.plan.grid
    assert auto.site.topology
    strange = replace(auto.site.topology, pattern=r"n(?P<number>\d+)")
    job = ordered(replace(auto, site=replace(auto.site, topology=strange)), HOSTS)
    assert list(job.hosts) == HOSTS and "does not match topology.pattern" in job.unordered
    assert job.plan.chosen and f"since {job.unordered}" in job.plan.chosen.reason


@pytest.mark.parametrize(
    ("topology", "names", "assumed"),
    [
        (None, ("<host 1>", "<host 2>", "<host 3>"), "since the site has no topology"),
        (
            Topology("names", pattern="(?P<rack>r)n[0-9]"),
            ("<host 1>", "<host 2>", "<host 3>"),
            "how large racks",
        ),
        (Topology("switches", switches={"a": "a[1-2]", "b": "b[1-4]"}), ("b1", "b2", "b3"), "largest racks"),
        (
            Topology("switches", switches={"a": "a[1-2]", "b": "b[1-4]"}, slow={"b2": 0.5, "b3": 0.5}),
            ("b1", "b4", "a1"),
            "largest racks",
        ),
        (Topology("switches", switches={"a": "a[1-2]"}), ("<host 1>", "<host 2>", "<host 3>"), "knows 2 sound hosts"),
        (Topology("slurm", file="/nowhere"), ("<host 1>", "<host 2>", "<host 3>"), "/nowhere cannot be read"),
    ],
)
def test_hosts_that_a_job_may_expect(topology: Topology | None, names: tuple[str, ...], assumed: str) -> None:
    found = expected(Site(scheduler="slurm", launcher="srun", topology=topology), 3)
    assert found.names == names and assumed in found.assumed
    assert [host.name for host in found.cluster.only(names)] == list(names)


def test_the_size_of_the_gradients_is_the_runs_own_where_it_is_known(auto: Plan) -> None:
    assert gradient_of(auto)[0] == workload_of(auto.run.train).gradient_bytes != GRADIENT_BYTES
    command = replace(auto.run, command=("python", "train.py"))
    own = replace(auto.run, train=replace(auto.run.train, model=replace(auto.run.train.model, name="mine:net")))
    for run in (command, own):
        assert gradient_of(replace(auto, run=run)) == (
            GRADIENT_BYTES,
            "the gradients of ResNet-50 in half precision, as the run's own size is not known",
        )


def begun(attempt: int, grid: tuple[int, ...]) -> Event:
    return Started(attempt, "7", tuple(HOSTS), grid, "auto: why")


def test_a_resumed_attempt_keeps_the_grid_of_the_one_before(auto: Plan) -> None:
    history = [begun(1, (4, 8)), begun(2, (8, 4))]
    resumed = with_former_grid(derive(auto, history, 3, Changes()), history)
    assert resumed.grid.dims == (8, 4) and resumed.chosen
    assert resumed.chosen.reason == "auto: as in attempt 2, since only the same grid gives the same bits"
    assert ordered(resumed, HOSTS).plan == resumed, "the hosts do not change it"


@pytest.mark.parametrize(
    ("made", "decided"),
    [
        ({"nodes": 4}, False),  # 16 ranks
        ({"grid": "auto"}, False),
        ({"grid": "2x4x4"}, True),
    ],
)
def test_a_resumed_attempt_chooses_again_where_it_must_or_is_asked_to(
    auto: Plan, made: dict[str, object], decided: bool
) -> None:
    history = [begun(1, (4, 8))]
    found = with_former_grid(derive(auto, history, 2, changes(**made)), history)  # type: ignore[arg-type]
    assert found.chosen is None and found.has_grid is decided


def test_auto_may_be_asked_for_in_place_of_the_grid_of_the_file(run_file: Path) -> None:
    named = plan(run_file, settings=["grid=4x8"])
    again = Submitting(2, "torus", changes=changes(nodes=4, grid="auto"))
    history = [begun(1, (4, 8)), again, Submitted(2, "8"), Started(2, "8", tuple(HOSTS[:4]), (4, 4))]
    derived = derive(named, history, 3, Changes())
    assert not derived.plan.has_grid and derived.plan.run.nodes == 4, "what attempt 2 changed holds for attempt 3"
    assert with_former_grid(derived, history).grid.dims == (4, 4)


def test_nothing_is_kept_of_an_attempt_that_never_began(auto: Plan) -> None:
    first = AttemptPlan(1, auto)
    assert with_former_grid(first, []) == auto and with_former_grid(first, [begun(1, (4, 8))]) == auto


def started_run(made: Plan) -> RunFolder:
    run = RunFolder(made.folder)
    run.attempt(1).folder.mkdir(parents=True)
    write_json(run.plan, made.as_json())
    plan_files.write_attempt(run.attempt(1), AttemptPlan(1, made))
    ledger.append(run.ledger, Submitting(1, made.run_id))
    return run


def test_the_status_shows_the_grid_once_the_job_has_chosen_it_and_why(auto: Plan) -> None:
    run = started_run(auto)
    (view,) = views([run])
    assert (view.grid, view.ranks, view.damaged) == (None, 32, ())
    assert ("grid", "auto: the job chooses it once it knows its hosts") in end_rows(run, view)
    assert ", grid auto, " in "\n".join(listing([view], long=True).lines())
    ledger.append(run.ledger, Started(1, "7", tuple(HOSTS), (4, 4, 2), "auto: two racks"))
    (view,) = views([run])
    assert (view.grid, view.ranks, view.grid_reason) == ((4, 4, 2), 32, "auto: two racks")
    assert ("grid", "4 x 4 x 2: auto: two racks") in end_rows(run, view)
    assert ", grid 4x4x2, " in "\n".join(listing([view], long=True).lines())


@pytest.mark.parametrize("grid", [None, "wide", [4], [4, 8, 2], [4, 8, 1, 1], [], [-4, -8], [4, True], {}])
def test_a_damaged_grid_is_named(auto: Plan, grid: object) -> None:
    run = started_run(auto)
    for path in (run.plan, run.attempt(1).plan):
        path.write_text(json.dumps({**json.loads(path.read_text()), "grid": grid}))
    (view,) = views([run])
    assert view.grid is None and "grid" in view.damaged[0]


def test_a_dry_run_says_that_the_job_chooses(auto: Plan) -> None:
    shown = dry_run(auto)
    chosen = with_expected_grid(auto)
    assert shown.main.environment["TORUSRUN_GRID"] == str(chosen.grid) and chosen.chosen
    assert f"grid {chosen.grid} is {chosen.chosen.reason}" in shown.notes
