"""Topologies read from what real programs said (recorded/topology/SOURCES); damaged text gives one clear error."""

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.keys.read import read
from torusrun.orchestrator.keys.site import Site
from torusrun.orchestrator.place.hosts.hostlist import numbers
from torusrun.orchestrator.place.hosts.model import Link, Nic, NodeType, Tree, cluster_of, racks
from torusrun.orchestrator.place.placement.binding import bindings, share
from torusrun.orchestrator.schedulers import topology as profile
from torusrun.orchestrator.schedulers.gridengine import facts as gridengine
from torusrun.orchestrator.schedulers.pbs import facts as pbs
from torusrun.orchestrator.schedulers.slurm import facts as slurm

RECORDED = Path(__file__).parent / "recorded" / "topology"
NODE = NodeType(4, (), Link(25e9, 5e-6), Link(50e9))


def recorded(name: str) -> str:
    return (RECORDED / name).read_text()


def test_slurms_tree() -> None:
    tree = slurm.tree(recorded("spartan.topology.txt"))
    assert list(tree.leaves) == ["le-266-q11-1-res", "le-266-q14-1-res", "le-266-r17-1-res", "le-266-r19-1-res"]
    assert tree.leaves["le-266-r19-1-res"][-6:] == [f"spartan-bm0{n}" for n in (29, 39, 40, 41, 42, 43)]
    assert set(tree.parents.values()) == {"sp-266-p16-1"}
    made = cluster_of(tree, NODE, 1 / 2, "Slurm")
    assert [s.name for s in made.path("le-266-q11-1-res")] == ["le-266-q11-1-res", "sp-266-p16-1"]
    assert made.switch["le-266-q11-1-res"].uplink == Link(14 * 25e9 / 2, 1e-6)


def test_a_topology_conf_with_comments_and_broken_lines() -> None:
    text = "# racks\nSwitchName=a Nodes=n[1-2] LinkSpeed=100 # old\n"
    text += "SwitchName=b \\\n  Nodes=n3\nSwitchName=top Switches=a,b\n"
    assert slurm.tree(text) == Tree({"a": ["n1", "n2"], "b": ["n3"]}, {"a": "top", "b": "top"})


def test_slurms_blocks_as_scontrol_prints_them() -> None:
    tree = slurm.tree(recorded("crusoe.topology.txt"))
    assert [len(nodes) for nodes in tree.leaves.values()] == [18] * 10 and not tree.parents
    assert tree.leaves["block02"][0] == "slurm-compute-node-018"
    above = "AggregatedBlock=b[0-1] BlockIndex=2 Nodes=n[1-4] BlockSize=4\n"
    two = "BlockName=b0 BlockIndex=0 Nodes=n[1-2] BlockSize=2\nBlockName=b1 BlockIndex=1 Nodes=n[3-4] BlockSize=2\n"
    assert slurm.tree(two + above) == Tree({"b0": ["n1", "n2"], "b1": ["n3", "n4"]})
    assert slurm.tree("BlockName=b0 Nodes=n[1-2]\nBlockSizes=2,4\n") == Tree({"b0": ["n1", "n2"]})


def test_a_ring_and_a_torus_of_slurm_are_leaves() -> None:
    lines = "RingName=ring0 Nodes=n[3,1,2] RingSize=3\n"
    assert slurm.tree(lines) == Tree({"ring0": ["n3", "n1", "n2"]})
    lines = "TorusName=pod1 Dims=4x4x2 Nodes=n[01-32]\n  TorusName=pod1 PlacementDims=2x2x2(8) Anchors=4\n"
    assert len(slurm.tree(lines).leaves["pod1"]) == 32


def test_one_of_several_topologies_is_asked_for_by_its_name() -> None:
    asked = []

    def ask(argv: Sequence[str]) -> str:
        asked.append(" ".join(argv))
        return ""

    slurm.SWITCHES.query(ask, "topo-b")
    assert asked == ["scontrol show topology topo-b"]


def test_pbs_text() -> None:
    text = recorded("cheyenne.pbsnodes.txt")
    assert pbs.tree(text, "switch").leaves == {"r8i5a0s0": ["r8i5n1"]}
    with pytest.raises(SiteError, match="has a resource 'rail'; they have "):
        pbs.tree(text, "rail")


def test_the_vnodes_of_a_host_are_one_host_below_a_switch() -> None:
    text = (RECORDED.parent / "openpbs/routes/nodes.txt").read_text()
    assert pbs.tree(text, "switch").leaves == {"leaf1": ["pn1", "pn2"], "leaf2": ["pn3", "pn4"]}


def test_host_groups_of_grid_engine() -> None:
    assert gridengine.tree(recorded("ucla.shgrp.txt")).leaves["@sudipto_pod"][:2] == ["n6277", "n7277"]
    nested = (
        "group_name @all\nhostlist @r1 @r2\ngroup_name @r1\nhostlist a \\\n         b\ngroup_name @r2\nhostlist NONE\n"
    )
    assert gridengine.tree(nested).leaves == {"@r1": ["a", "b"]}
    assert gridengine.group_names("@allhosts\n@rack1\n@rack2\n", "@rack") == ["@rack1", "@rack2"]


def test_a_list_of_routers_of_pbs_has_switches_within_one_another() -> None:
    found = pbs.tree(recorded("router.pbsnodes.txt"), "Router")
    assert found.leaves == {"med-04": ["b01"], "sml-01": ["s07"]}, "the first of each list is the host itself"
    assert found.parents == {"med-04": "ib-04", "ib-04": "bar", "sml-01": "ib-01", "ib-01": "bar"}
    overlapping = "".join(
        f"{name}\n     resources_available.switch = {listed}\n"
        for name, listed in (("a", "x"), ("b", "x,y"), ("c", "y"))
    )
    with pytest.raises(SiteError, match="the switches x and y, which share only some of their hosts"):
        pbs.tree(overlapping, "switch")


def test_ranks_take_the_gpu_adapter_and_cores_beside_them() -> None:
    nics = tuple(Nic(f"mlx5_{gpu}", (gpu,)) for gpu in range(4))
    cores = tuple(numbers(text) for text in ("0-31", "32-63", "64-95", "96-127"))
    taken = bindings(NodeType(4, nics, Link(1.0), Link(1.0), cores), 4)
    assert [(b.gpu, b.hca) for b in taken] == [(0, "mlx5_0"), (1, "mlx5_1"), (2, "mlx5_2"), (3, "mlx5_3")]
    assert [(b.cores[0], b.cores[-1]) for b in taken] == [(0, 31), (32, 63), (64, 95), (96, 127)]


@pytest.mark.parametrize(
    ("text", "found"),
    [("0-3,8", (0, 1, 2, 3, 8)), ("N/A", ()), ("", ()), ("0-99999999999", ()), ("3-1", ())],
)
def test_the_numbers_of_a_list(text: str, found: tuple[int, ...]) -> None:
    assert numbers(text) == found


THREADS = (*range(20), *range(40, 60))  # of a node of two sockets: the second run are the first's hardware threads


@pytest.mark.parametrize(
    ("beside", "allowed", "shares"),
    [
        ([THREADS] * 2, None, [(*range(10), *range(40, 50)), (*range(10, 20), *range(50, 60))]),
        ([THREADS] * 2, {0, 1, 2, 3, 40, 41, 42, 43}, [(0, 1, 40, 41), (2, 3, 42, 43)]),
        ([THREADS, (20, 21)], {20, 21}, [(), (20, 21)]),
        ([(0, 2, 4, 6)] * 2, None, [(0, 2), (4, 6)]),
        ([(0,)] * 2, None, [(0,), (0,)]),
        ([(), ()], None, [(), ()]),
    ],
)
def test_ranks_divide_cores_within_what_their_job_has(
    beside: list[tuple[int, ...]], allowed: set[int] | None, shares: list[tuple[int, ...]]
) -> None:
    assert [share(beside, i, allowed) for i in range(len(beside))] == shares


@pytest.mark.parametrize("beside", [[[0]], [[99999]], [[]]], ids=["there", "not there", "unknown"])
def test_binding_keeps_to_the_cores_of_the_job_and_never_fails(beside: list[list[int]]) -> None:
    program = "import os, sys; from torusrun.orchestrator.place.placement.binding import bind; "
    program += "a = os.sched_getaffinity(0); "
    program += f"bind({beside}, 0); print(sorted(os.sched_getaffinity(0)) == sorted(a & set({beside[0]}) or a))"
    said = subprocess.run([sys.executable, "-c", program], text=True, capture_output=True, timeout=60)
    assert said.stdout == "True\n", said.stderr


@given(st.integers(1, 1088))
def test_hosts_are_numbered_34_to_a_rack(number: int) -> None:
    (rack,) = racks([f"g{number:04}"], r"g(?P<number>\d+)", 34).leaves
    assert rack == f"rack{-(-number // 34)}"


def test_a_rack_in_the_name() -> None:
    tree = racks(["r2-n1", "r1-n7", "r2-n0"], r"(?P<rack>r\d+)-n\d+", None)
    assert tree.leaves == {"r1": ["r1-n7"], "r2": ["r2-n1", "r2-n0"]}


READERS: list[tuple[Callable[[str], Any], str]] = [
    (slurm.tree, "spartan.topology.txt"),
    (slurm.tree, "crusoe.topology.txt"),
    (lambda text: pbs.tree(text, "switch"), "cheyenne.pbsnodes.txt"),
    (gridengine.tree, "ucla.shgrp.txt"),
]


@pytest.mark.parametrize(("reader", "name"), READERS, ids=lambda value: value if isinstance(value, str) else "")
@given(data=st.data())
def test_damaged_text_is_read_or_refused_in_words(reader: Callable[[str], Any], name: str, data: st.DataObject) -> None:
    text = recorded(name)
    cut = data.draw(st.integers(0, len(text)))
    junk = data.draw(st.text(max_size=5))
    resume = data.draw(st.integers(cut, len(text)))
    try:
        reader(text[:cut] + junk + text[resume:])
    except SiteError as error:
        assert str(error) and "Traceback" not in str(error)


@pytest.mark.parametrize(("reader", "name"), READERS, ids=lambda value: value if isinstance(value, str) else "")
def test_what_is_not_its_output_at_all_is_refused(reader: Callable[[str], Any], name: str) -> None:
    for text in ("", "command not found\n", "\x00\xff"):
        with pytest.raises(SiteError):
            reader(text)


def test_contradictions_in_a_topology_are_refused() -> None:
    with pytest.raises(SiteError, match="n1 is below both a and b"):
        cluster_of(Tree({"a": ["n1"], "b": ["n1"]}), NODE, 1.0, "the file")
    with pytest.raises(SiteError, match="form a cycle"):
        cluster_of(Tree({"a": ["n1"]}, {"a": "b", "b": "a"}), NODE, 1.0, "the file")
    with pytest.raises(SiteError, match="names n9"):
        cluster_of(Tree({"a": ["n1"]}), NODE, 1.0, "the file", {"n9": 0.5})


def site(topology: str) -> Site:
    node = "node: {ranks: 4, hcas: [m0, m1], inter_node: 200Gbit/s}"
    return read(Site, f"scheduler: slurm\nlauncher: srun\n{node}\ntopology: {topology}\n", "site.yaml")[0]


def test_the_topology_of_a_site_becomes_a_cluster() -> None:
    assert profile.cluster(read(Site, "scheduler: slurm\nlauncher: srun\n", "site.yaml")[0], ["n1"]) is None
    abci = site("{source: names, rack_nodes: 34, uplink: 1/3, slow: {g0001: 1/2, rack2: 0.5, g0999: 0.5}}")
    made = profile.cluster(abci, ["g0001", "g0034", "g0035"])
    assert made and [s.name for s in made.switches] == ["rack1", "rack2", "(above)"]
    assert made.switch["rack1"].uplink == Link(25e9 * 34 / 3, 1e-6)
    assert made.switch["rack2"].uplink == Link(25e9 * 34 / 6, 1e-6)
    assert [h.network.bandwidth_bytes_per_s for h in made.hosts] == [12.5e9, 25e9, 25e9]
    assert [(nic.name, nic.gpus) for nic in made.node.nics] == [("m0", (0, 1)), ("m1", (2, 3))]


def test_a_file_replaces_the_scheduler(tmp_path: Path) -> None:
    (tmp_path / "topology.conf").write_text(recorded("spartan.topology.txt"))
    made = profile.cluster(site(f"{{source: slurm, file: {tmp_path}/topology.conf}}"), [])
    assert made and len(made.hosts) == 14 + 39 + 20 + 14
    with pytest.raises(SiteError, match="cannot be read"):
        profile.cluster(site("{source: pbs, file: /nowhere}"), [])


def test_grid_engine_prints_the_groups_that_are_racks() -> None:
    answers = {"-shgrpl": "@all\n@rack1\n@rack2\n", "@rack1": "n1 n2\n", "@rack2": "group_name @rack2\nhostlist n3\n"}
    printed = gridengine.printed(lambda argv: answers[argv[-1]], gridengine.RACK)
    assert gridengine.tree(printed).leaves == {"@rack1": ["n1", "n2"], "@rack2": ["n3"]}
