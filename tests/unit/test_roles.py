"""The roles of a run: their keys, their hosts, ranks and GPUs, and the words that are filled in."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.job.start.launch_order import LaunchOrder, Rank, RoleOrder
from torusrun.orchestrator.keys.main_role import awaited, main_name, services
from torusrun.orchestrator.keys.request import Resources
from torusrun.orchestrator.keys.role_words import filled
from torusrun.orchestrator.keys.roles import Role
from torusrun.orchestrator.keys.run import RunSpec
from torusrun.orchestrator.keys.site import Node, Site
from torusrun.orchestrator.place.placement.binding import node_type, of_gpus, share
from torusrun.orchestrator.place.placement.grid import Grid
from torusrun.orchestrator.place.placement.mapping import Placement, place
from torusrun.orchestrator.run.folder.run_folder import Attempt
from torusrun.orchestrator.run.plan.fits_roles import misfits
from torusrun.orchestrator.run.plan.plan import Plan, plan
from torusrun.orchestrator.run.plan.roles import cores, gpus, order, with_services
from torusrun.orchestrator.run.program.what_runs import Program, ranks_environment

SLURM = Site(scheduler="slurm", launcher="srun", node=Node(ranks=4, gpus=4))
LOCAL = Site(scheduler="local", launcher="spawn")
HEAD = "name: x\nsite: site.yaml\ncode: none\n"
GRPO = """
roles:
  rollout: {nodes: 2, command: [serve, "{port}"], ready: {http: /health, within: 20m}}
  judge: {on: rollout, gpus: 1, command: [judge]}
  trainer: {nodes: 4, command: [train, "{rollout.url}"], after: [rollout, judge], main: true}
"""


def planned(folder: Path, text: str) -> Plan:
    (folder / "site.yaml").write_text("scheduler: slurm\nlauncher: srun\nnode: {ranks: 4, gpus: 4}\n")
    (folder / "run.yaml").write_text(HEAD + text)
    return plan(folder / "run.yaml")


def refused(folder: Path, text: str) -> str:
    with pytest.raises(UserError) as error:
        planned(folder, text)
    return str(error.value)


def test_the_main_role_is_the_run_and_the_others_are_its_services(tmp_path: Path) -> None:
    made = planned(tmp_path, GRPO)
    assert (made.run.nodes, made.run.command, made.ranks) == (4, ("train", "{rollout.url}"), 16)
    assert (made.all_nodes, made.all_ranks, made.most_ranks_on_a_node) == (6, 16 + 2 + 2, 4)
    assert main_name(made.run) == "trainer" and list(services(made.run)) == ["rollout", "judge"]
    assert order(made.run) == ["rollout", "judge", "trainer"]


def test_a_training_has_services_without_being_a_role(tmp_path: Path) -> None:
    made = planned(tmp_path, "nodes: 2\ntrain: {data: digits}\nroles: {board: {on: main, command: [tensorboard]}}\n")
    assert (main_name(made.run), made.run.nodes, made.all_nodes) == ("main", 2, 2)
    assert made.most_ranks_on_a_node == 5


def test_a_main_role_that_is_the_run_itself_comes_after_the_services_that_do_not_wait_for_it() -> None:
    given = {"a": (), "b": ("a",), "c": ("main",), "d": ("c",)}
    run = RunSpec("x", "x", roles={name: Role(command=("y",), after=after) for name, after in given.items()})
    assert awaited(run)["main"] == ("a", "b")
    assert order(run) == ["a", "b", "main", "c", "d"]


@pytest.mark.parametrize(
    ("text", "place_and_words"),
    [
        ("{a: {main: true, command: [x]}, b: {main: true, command: [y]}}", "run.yaml:4:50: 'roles.b.main': 'a' is"),
        ("{a: {main: true, command: [x], on: b}, b: {command: [y]}}", "'roles.a.on' is a key of services"),
        ("{a: {main: true, command: [x]}}\ncommand: [z]", "run.yaml:5:10: 'command' stands in the run"),
        ("{a: {main: true, command: [x]}, b: {command: [y]}}\nnodes: 3", "'nodes' is 3, and the roles have 2"),
        ("{a: {main: true, command: [x], after: [c]}, b: {command: [y]}}", "'roles.a.after' names 'c', which is not"),
        ("{a: {main: true, command: [x, '{bb.url}']}, b: {command: [y]}}", "names the role 'bb', which the run does"),
        ("{a: {main: true, command: [x], after: [b]}, b: {command: [y], after: [a]}}", "a and b wait for one"),
        ("{b: {nodes: 2, on: main, command: [y]}}", "'roles.b.nodes' and 'roles.b.on' exclude"),
        ("{b: {on: c, command: [y]}, c: {on: main, command: [z]}}", "write 'on: main'"),
        ("{b: {on: main, gpus: 5, command: [y]}}", "take 5 GPUs of a node together, which has 4 GPUs"),
        ("{b: {nodes: 1}}", "'roles.b.command' is missing"),
        ("{b: {command: [y], alive: true}}", "'roles.b.alive' repeats the check of 'roles.b.ready'"),
        ("{b: {command: [y], ready: {log: '('}}}", "is not a regular expression"),
        ("{b: {command: [y], ready: {tcp: true, http: /}}}", "'roles.b.ready' has http and tcp; keep one of them"),
        ("{main: {command: [y]}}", "choose another name"),
        ("{B: {command: [y]}}", "is not a role's name"),
    ],
)  # fmt: skip
def test_a_role_that_does_not_fit_is_refused_with_its_place(tmp_path: Path, text: str, place_and_words: str) -> None:
    own = "" if "main: true" in text else "\ncommand: [x]"
    assert place_and_words in refused(tmp_path, f"roles: {text}{own}\n")


def test_services_have_the_hosts_that_the_main_role_leaves(tmp_path: Path) -> None:
    run = planned(tmp_path, GRPO).run
    placement = place(Grid((4, 4)), ["a", "b", "c", "d"], 4)
    whole = with_services(run, SLURM, placement, ["e", "a", "b", "c", "d", "f"])
    places = {name: [(slot.rank, slot.host, slot.local_rank) for slot in whole.of_role(name)] for name in run.roles}
    assert places["rollout"] == [(16, "e", 0), (17, "f", 0)] and places["judge"] == [(18, "e", 1), (19, "f", 1)]
    assert whole.hostfile.split() == [*"aaaabbbbccccdddd", "e", "f", "e", "f"]
    assert Placement.from_json(whole.as_json()) == whole


def test_the_variables_of_the_main_role_are_its_own(tmp_path: Path) -> None:
    text = "env: {OF_ALL: x}\nroles: {a: {main: true, command: [x], env: {OWN: '{b.url}'}}, b: {command: [y]}}\n"
    made = planned(tmp_path, text)
    assert made.environment == {"OF_ALL": "x", "OWN": "{b.url}"}
    assert made.jobs_environment == made.run.roles["b"].env == {"OF_ALL": "x"}


def test_on_one_machine_a_role_is_on_the_nodes_of_a_service_too() -> None:
    run = RunSpec("x", "x", command=("y",), roles={"a": Role(command=("y",)), "b": Role(on="a", command=("y",))})
    whole = with_services(run, LOCAL, place(Grid((2, 1)), ["here"], 2), ["here"])
    assert [(slot.role, slot.local_rank) for slot in whole.slots] == [("main", 0), ("main", 1), ("a", 2), ("b", 3)]


def test_each_role_has_torchruns_variables_of_its_own(tmp_path: Path) -> None:
    run = planned(tmp_path, GRPO).run
    whole = with_services(run, SLURM, place(Grid((4, 4)), [*"abcd"], 4), [*"abcdef"])
    own = ranks_environment(whole, whole.of_role("judge")[1].rank, "x", 1)
    assert {name: own[name] for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "NODE_RANK", "TORUSRUN_ROLE")} == {
        "RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "NODE_RANK": "1", "TORUSRUN_ROLE": "judge",
    }  # fmt: skip
    assert "TORUSRUN_GRID" not in own


def test_roles_on_the_same_nodes_share_their_gpus(tmp_path: Path) -> None:
    run = planned(tmp_path, GRPO).run
    assert [gpus(run, SLURM, name) for name in ("trainer", "rollout", "judge")] == [None, (0, 1, 2), (3,)]
    beside = RunSpec("x", "x", command=("y",), roles={"b": Role(on="main", command=("z",))})
    assert [gpus(beside, SLURM, name) for name in ("main", "b")] == [(0, 1, 2, 3), ()]


NEAR = ("0-15", "0-15", "16-31", "16-31")


def test_roles_on_the_same_nodes_share_the_cores_beside_their_gpus(tmp_path: Path) -> None:
    run, site = planned(tmp_path, GRPO).run, replace(SLURM, node=Node(ranks=4, gpus=4, gpu_cores=NEAR))
    shares = {name: cores(run, site, name) for name in run.roles}
    assert shares == {"trainer": tuple(range(32)), "rollout": tuple(range(24)), "judge": tuple(range(24, 32))}


@pytest.mark.parametrize("gpus_of_node", [0, 2, 8])
def test_a_plan_names_no_cores_where_the_scheduler_chooses_the_gpus(tmp_path: Path, gpus_of_node: int) -> None:
    node = Node(ranks=4, gpus=gpus_of_node, gpu_cores=("0-7",) * gpus_of_node)
    run, site = planned(tmp_path, GRPO).run, replace(SLURM, node=node, request=Resources(gpus=4))
    assert {cores(run, site, name) for name in run.roles} == {()} and not [*misfits(run, site)]


def test_the_ranks_on_a_node_bind_themselves_to_the_cores_that_a_plan_shows(tmp_path: Path) -> None:
    run, site = planned(tmp_path, GRPO).run, replace(SLURM, node=Node(ranks=4, gpus=4, gpu_cores=NEAR))
    program = Program(("x",))
    orders = [RoleOrder(program, name=name, gpus=gpus(run, site, name)) for name in run.roles]
    order = LaunchOrder("x", tuple(orders), ("R", "L"), (), of_gpus(node_type(site.node)), None, 30.0, 0o077)
    placement = with_services(run, site, place(Grid((4, 4)), [*"abcd"], 4), [*"abcdef"])
    bound: dict[str, set[int]] = {name: set() for name in run.roles}
    for slot in placement.slots:
        rank = Rank(slot.rank, Attempt(tmp_path), order, placement)
        bound[slot.role].update(share(rank.cores({}), slot.local_rank))
    assert {name: sorted(found) for name, found in bound.items()} == {n: [*cores(run, site, n)] for n in run.roles}


def test_roles_that_have_more_ranks_than_cores_together_are_refused(tmp_path: Path) -> None:
    text = GRPO.replace("gpus: 1,", "gpus: 1, ranks_per_node: 3,")
    site = replace(SLURM, node=Node(ranks=4, gpus=4, gpu_cores=("0", "1", "2", "2")))
    (wrong,) = misfits(planned(tmp_path, text).run, site)
    assert "'rollout' and 'judge' are bound to the same cores of a node (2), which are too few for" in wrong[1]


@given(st.text(alphabet="{}portulas. \"':\\$x"))
def test_only_the_places_of_roles_are_filled_in(text: str) -> None:
    made = filled(text, {"rollout": {"url": "U", "port": "P", "hosts": "H", "address": "A"}}, "7")
    if "{port}" not in text:
        assert made == text


def test_a_json_argument_keeps_its_braces() -> None:
    facts = {"server": {"url": "http://h:1", "port": "1", "hosts": "h", "address": "h"}}
    words = '{"url": "{server.url}", "own": {port}, "other": {unknown.url}, "n": {"server": {}}}'
    expected = '{"url": "http://h:1", "own": 2, "other": {unknown.url}, "n": {"server": {}}}'
    assert filled(words, facts, "2") == expected
