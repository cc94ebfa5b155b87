"""Lists of hosts and topologies: read as schedulers write them, written back exactly, and refused in words."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torusrun.orchestrator.base.errors import SiteError, UserError
from torusrun.orchestrator.cli.verbs import shared_arguments
from torusrun.orchestrator.keys.read import read
from torusrun.orchestrator.keys.site import Site
from torusrun.orchestrator.place.hosts import infiniband
from torusrun.orchestrator.place.hosts.hostlist import expand, fold, numbers
from torusrun.orchestrator.place.hosts.model import Link, Nic, NodeType, Tree, cluster_of, racks
from torusrun.orchestrator.place.placement.binding import beside, bindings, of_gpus, share
from torusrun.orchestrator.schedulers import topology as profile
from torusrun.orchestrator.schedulers.gridengine import facts as gridengine
from torusrun.orchestrator.schedulers.pbs import switches as pbs
from torusrun.orchestrator.schedulers.slurm import facts as slurm

hosts = st.from_regex(r"[a-z]{0,3}[0-9]{1,4}[a-z.-]{0,3}|[a-z]{1,5}", fullmatch=True)
runs = st.tuples(st.sampled_from(["n", "g", "r1-n"]), st.integers(0, 2000), st.integers(1, 40), st.integers(1, 5)).map(
    lambda run: [f"{run[0]}{number:0{run[3]}}" for number in range(run[1], run[1] + run[2])]
)


@given(st.lists(hosts | runs, min_size=1, max_size=12))
def test_folding_is_the_inverse_of_expanding(parts: list[str | list[str]]) -> None:
    names = [name for part in parts for name in (part if isinstance(part, list) else [part])]
    assert expand(fold(names)) == names


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n[1-3,7]", ["n1", "n2", "n3", "n7"]), ("n[3,1]", ["n3", "n1"]), ("n[8-11]", ["n8", "n9", "n10", "n11"]),
        ("n[098-101]", ["n098", "n099", "n100", "n101"]), ("n[1,1]", ["n1", "n1"]),
        ("login,g0001,h2-x", ["login", "g0001", "h2-x"]),
    ],
)  # fmt: skip
def test_lists_are_as_slurm_writes_them(text: str, names: list[str]) -> None:
    assert fold(names) == text


def test_many_hosts_are_folded_and_expanded_and_a_name_with_brackets_is_refused() -> None:
    assert fold([f"g{i:06}" for i in range(100_000)]) == "g[000000-099999]"
    with pytest.raises(SiteError, match="cannot be written in a host list"):
        fold(["n1", "n[2]"])
    assert expand("r[1-2]n[08-09]x") == ["r1n08x", "r1n09x", "r2n08x", "r2n09x"]
    assert len(expand("n[1-1000][1-1000]")) == 1_000_000


@pytest.mark.parametrize(
    "text",
    [
        "n[1-99999999999]", "n[0-9][0-9][0-9][0-9][0-9][0-9][0-9]", "n[1-999999999999999999]",
        "n[1-500000],m[1-500001]", "n[1-1000,1-1000][1-1000]", "a" + "[1-2]" * 2000,
    ],
)  # fmt: skip
def test_a_list_of_too_many_hosts_is_refused_before_it_is_made(text: str) -> None:
    with pytest.raises(SiteError, match="more than 1000000 hosts"):
        expand(text)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("n[\u0661-\u0663]", "not a host list"), ("n[1-\u0663]", "not a host list"), ("n[3-1]", "at '3-1'"),
        ("n[" + "9" * 400 + "]", "not a host list"), ("n[" + "9" * 19 + "]", "not a host list"),
        ("n[1_0]", "not a host list"), ("n[]", "not a host list"), ("n[1-2-3]", "at '1-2-3'"), ("n[,]", "at ''"),
        ("n" * 300 + "[1-2]", "more than 253 characters"), ("[1]" * 5000, "more than 253 characters"),
        ("n[1", "not a host list"), ("n[[1]]", "not a host list"), ("n]", "not a host list"), ("", "not a host list"),
    ],
)  # fmt: skip
def test_text_that_is_no_host_list_gets_a_short_error(text: str, says: str) -> None:
    with pytest.raises(SiteError, match=re.escape(says)) as told:
        expand(text)
    assert len(str(told.value)) < 600


@pytest.mark.parametrize(
    ("content", "names"),
    [
        (b"# nodes\nn01 slots=8\nn02 slots=8 max-slots=8  # rack B\n\nn03 slots = 8\n", "n01 n02 n03"),
        (b"n01:8\nn02:8 binding=user:0\nn[03-04]:8\n", "n01 n02 n03 n04"),
        (b"alice@192.168.1.10 slots=2\nroot@worker-1 slots=1\n", "192.168.1.10 worker-1"),
        (b"g1.x.org\n" * 4 + b"g2.x.org\n" * 4 + b"g1.x.org\n", "g1.x.org g2.x.org"),
        (b"gpu-a02 4 gpu.q@gpu-a02 UNDEFINED\ngpu-a01 4 gpu.q@gpu-a01 0,0:0,1\n", "gpu-a02 gpu-a01"),
        (b"hostA 2 hostB 4\n", "hostA hostB"),
        (b"b24-[1-2], b25-[1,4]\nn1 n2,n3 ,\n", "b24-1 b24-2 b25-1 b25-4 n1 n2 n3"),
        (b"\xef\xbb\xbfn1\r\nn2\r\n", "n1 n2"),
        ("n1\r\nn2\r\n".encode("utf-16"), "n1 n2"),
        (b"cn[001-008/3]\nl01,l3\na001,a2\nn[9-11]\n", "cn001 cn004 cn007 l01 l3 a001 a2 n9 n10 n11"),
        (b"fe80::1\n10.0.0.1:4\n", "fe80::1 10.0.0.1"),
        (b"n1g[0010,0011],n2g0005\n", "n1g0010 n1g0011 n2g0005"),
    ],
)
def test_hosts_of_the_files_of_launchers_and_schedulers(content: bytes, names: str, tmp_path: Path) -> None:
    (tmp_path / "hosts").write_bytes(content)
    assert shared_arguments.hosts(f"{tmp_path}/hosts") == names.split()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"n1\n\nn[1-99999999999]\n", ":3: a host list of more than 1000000 hosts"),
        (b"n[1-999999]\n" * 3, ":2: a host list of more than 1000000 hosts"),
        (b"n1\nn[2\n", ":2: not a host list"),
        (b"# all\n@racks\n", ":2: '@racks' is not the name of a host"),
        (b"^n1\n", ":1: '^n1' is not the name of a host"),
        (b"+n1\n", ":1: '+n1' is not the name of a host"),
        (b"[gpu]\nn1\n", ":1: not a host list: '[gpu]'"),
        (b"- n1\n", ":1: '-' is not the name of a host"),
        (b"n1\n10.0.0.2 n2 n2.x.org\n", ":2: '10.0.0.2 n2 n2.x.org' is an address with its names"),
        (b"n1\nslots=4\n", ":2: 'slots=4' has no host before it"),
        (b"SLURM_JOB_NODELIST=n[1-3]\nn9\n", ":1: 'SLURM_JOB_NODELIST=n[1-3]' has no host before it"),
        (b"8 n1\n", ":1: '8' is a number where a host should be"),
        (b"n1/0*4+n2/0*4\n", ":1: 'n1/0*4+n2/0*4' is not the name of a host"),
        (b"n1\nn[1-8]!n3\n", ":2: 'n1!n3' is not the name of a host"),
        (b"n[1-010]\n", ":1: the numbers of '1-010' have different widths"),
        ("n1\nbüro\n".encode(), ":2: 'büro' is not the name of a host"),
        (b"n\xff\n", "not UTF-8 text (byte 1)"),
        (b" \n", "it has no hosts"),
    ],
)
def test_an_error_in_a_file_of_hosts_names_the_line(content: bytes, says: str, tmp_path: Path) -> None:
    (tmp_path / "hosts").write_bytes(content)
    with pytest.raises(UserError, match=re.escape(f"--hosts {tmp_path}/hosts")) as told:
        shared_arguments.hosts(f"{tmp_path}/hosts")
    assert says in str(told.value)


@pytest.mark.parametrize("name", ["x" * 300, "a\0b", "a\udcff", "~nosuchuser/hosts", "/dev/zero", "pipe", "."])
def test_a_file_of_hosts_that_cannot_be_read(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    with pytest.raises(UserError):
        shared_arguments.hosts(name)


def test_hosts_may_come_from_a_pipe(tmp_path: Path) -> None:
    ours, theirs = os.pipe()
    os.write(theirs, b"n[1-3]\n")
    os.close(theirs)
    assert shared_arguments.hosts(f"/dev/fd/{ours}") == ["n1", "n2", "n3"]
    os.close(ours)


# Topologies read from what real programs said (recorded/topology/SOURCES); damaged text gives one clear error.


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


def test_a_topology_conf_with_comments_broken_lines_rings_and_tori() -> None:
    text = "# racks\nSwitchName=a Nodes=n[1-2] LinkSpeed=100 # old\n"
    text += "SwitchName=b \\\n  Nodes=n3\nSwitchName=top Switches=a,b\n"
    assert slurm.tree(text) == Tree({"a": ["n1", "n2"], "b": ["n3"]}, {"a": "top", "b": "top"})
    lines = "RingName=ring0 Nodes=n[3,1,2] RingSize=3\n"
    assert slurm.tree(lines) == Tree({"ring0": ["n3", "n1", "n2"]})
    lines = "TorusName=pod1 Dims=4x4x2 Nodes=n[01-32]\n  TorusName=pod1 PlacementDims=2x2x2(8) Anchors=4\n"
    assert len(slurm.tree(lines).leaves["pod1"]) == 32


def test_slurms_blocks_as_scontrol_prints_them() -> None:
    tree = slurm.tree(recorded("crusoe.topology.txt"))
    assert [len(nodes) for nodes in tree.leaves.values()] == [18] * 10 and not tree.parents
    assert tree.leaves["block02"][0] == "slurm-compute-node-018"
    above = "AggregatedBlock=b[0-1] BlockIndex=2 Nodes=n[1-4] BlockSize=4\n"
    two = "BlockName=b0 BlockIndex=0 Nodes=n[1-2] BlockSize=2\nBlockName=b1 BlockIndex=1 Nodes=n[3-4] BlockSize=2\n"
    assert slurm.tree(two + above) == Tree({"b0": ["n1", "n2"], "b1": ["n3", "n4"]})
    assert slurm.tree("BlockName=b0 Nodes=n[1-2]\nBlockSizes=2,4\n") == Tree({"b0": ["n1", "n2"]})


def test_one_of_several_topologies_is_asked_for_by_its_name() -> None:
    asked = []

    def ask(argv: Sequence[str]) -> str:
        asked.append(" ".join(argv))
        return ""

    slurm.SWITCHES.query(ask, "topo-b")
    assert asked == ["scontrol show topology topo-b"]


def test_pbs_text_and_the_vnodes_of_a_host_which_are_one_below_a_switch() -> None:
    text = recorded("cheyenne.pbsnodes.txt")
    assert pbs.tree(text, "switch").leaves == {"r8i5a0s0": ["r8i5n1"]}
    with pytest.raises(SiteError, match="has a resource 'rail'; they have "):
        pbs.tree(text, "rail")
    text = (RECORDED.parent / "openpbs/routes/nodes.txt").read_text()
    assert pbs.tree(text, "switch").leaves == {"leaf1": ["pn1", "pn2"], "leaf2": ["pn3", "pn4"]}


def test_host_groups_of_grid_engine() -> None:
    assert gridengine.tree(recorded("ucla.shgrp.txt")).leaves["@sudipto_pod"][:2] == ["n6277", "n7277"]
    nested = (
        "group_name @all\nhostlist @r1 @r2\ngroup_name @r1\nhostlist a \\\n         b\ngroup_name @r2\nhostlist NONE\n"
    )
    assert gridengine.tree(nested).leaves == {"@r1": ["a", "b"]}
    assert gridengine.group_names("@allhosts\n@rack1\n@rack2\n", "@rack") == ["@rack1", "@rack2"]


def test_an_infiniband_fabric() -> None:
    found = infiniband.tree(recorded("infiniscale.ibnetdiscover.txt"))
    assert found.leaves == {"000b8cffff002347": ["node1", "node2", "node10", "node23", "node24"]}


def test_switches_and_adapters_without_names_are_told_apart_by_their_guids() -> None:
    first, second = "0c42a103000ef7c6", "0c42a103000ef206"
    found = infiniband.tree(recorded("unnamed.ibnetdiscover.txt"))
    assert found.leaves[first] == ["H-0c42a10300389dc0", "H-0c42a10300389dc8", "n08509", "n08510"]
    assert found.leaves[second] == ["H-0c42a10300408008", "n08601"]
    bull = infiniband.tree(recorded("bull.ibnetdiscover.txt"))
    assert bull.leaves["080038000535c3ff"] == ["r3-1016"], "only the section of the adapter names its switch"
    assert {*bull.leaves["080038000235c7ef"]} == {"0", "0-r3", "r3-1014", "r3-1015"}
    unmarked = 'Switch\t36 "S-a1"\n[1]\t"H-b1"[1](b1)\nSwitch\t36 "S-a2"\n[1]\t"H-b2"[1](b2)\n'
    assert infiniband.tree(unmarked).leaves == {"a1": ["H-b1"], "a2": ["H-b2"]}


def test_leaves_and_spines_and_the_agents_in_switches() -> None:
    """Lines as newer versions write them, with port GUIDs and speeds."""
    text = ""
    for leaf, nodes in (("a1", "12"), ("a2", "34")):
        text += f'Switch\t36 "S-{leaf}"\t\t# "MF0;leaf-{leaf}:SB7890/U1" enhanced port 0 lid 1 lmc 0\n'
        text += "".join(f'[{n}]\t"H-b{n}"[1](b{n}) \t\t# "g000{n} mlx5_0" lid 2{n} 4xEDR\n' for n in nodes)
        text += '[37]\t"H-c1"[1](c1) \t\t# "Mellanox Technologies Aggregation Node" lid 9 4xEDR\n'
        text += (
            '[19]\t"S-e1"[3]\t\t# "MF0;spine:CS7500/L1/U1" lid 13 4xEDR\n[20]\t"S-e1"[4]\t\t# "spine" lid 13 4xEDR\n\n'
        )
    text += 'Switch\t36 "S-e1"\t\t# "spine" enhanced port 0 lid 13 lmc 0\n[3]\t"S-a1"[19]\t\t# "leaf" lid 1 4xEDR\n'
    found = infiniband.tree(text)
    assert found.leaves == {"a1": ["g0001", "g0002"], "a2": ["g0003", "g0004"]}


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
    ("near", "allowed", "shares"),
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
    near: list[tuple[int, ...]], allowed: set[int] | None, shares: list[tuple[int, ...]]
) -> None:
    assert [share([[cores] for cores in near], i, allowed) for i in range(len(near))] == shares


def test_a_rank_with_several_gpus_has_the_cores_beside_all_of_them() -> None:
    sockets = NodeType(4, (), Link(1.0), Link(1.0), ((0, 1, 2, 3), (0, 1, 2, 3), (4, 5, 6, 7), (4, 5, 6, 7)))
    assert [binding.cores for binding in bindings(sockets, 1)] == [tuple(range(8))]
    server, judge = beside(of_gpus(sockets)[:3], 1), beside(of_gpus(sockets)[3:], 1)
    assert share([*server, *judge], 0) == (0, 1, 2, 3, 4, 5) and share([*server, *judge], 1) == (6, 7)
    assert share([*server, *beside((), 1)], 1) == ()


@pytest.mark.parametrize("near", [[[0]], [[99999]], [[]]], ids=["there", "not there", "unknown"])
def test_binding_keeps_to_the_cores_of_the_job_and_never_fails(near: list[list[int]]) -> None:
    program = "import os, sys; from torusrun.orchestrator.place.placement.binding import bind; "
    program += "a = os.sched_getaffinity(0); "
    program += f"bind({[near]}, 0); print(sorted(os.sched_getaffinity(0)) == sorted(a & set({near[0]}) or a))"
    said = subprocess.run([sys.executable, "-c", program], text=True, capture_output=True, timeout=240)
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
    (infiniband.tree, "infiniscale.ibnetdiscover.txt"),
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
