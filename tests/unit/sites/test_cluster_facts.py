"""What schedulers tell of their clusters, read from recorded output of real ones."""

from collections.abc import Callable, Sequence

import pytest

from tests.unit.sites.recorded_clusters import (
    GRIDENGINE,
    GRIDENGINE_WITH_GPUS,
    LOCAL,
    PBS,
    PBS_WITH_ROUTES,
    RECORDED,
    SLURM,
    SLURM_WITHOUT_ACCOUNTS,
    Ask,
    recorded,
)
from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.schedulers.cluster_facts import NodeKind, Queue, duration_s
from torusrun.orchestrator.schedulers.gridengine import facts
from torusrun.orchestrator.schedulers.local import scheduler
from torusrun.orchestrator.schedulers.pbs import facts as pbs_cluster
from torusrun.orchestrator.schedulers.pbs.facts import vnodes_in
from torusrun.orchestrator.schedulers.slurm import facts as slurm_cluster


def test_slurm_reports_partitions_nodes_accounts_and_switches() -> None:
    facts = slurm_cluster.describe(SLURM, "labuser")
    main, short, closed = facts.queues
    assert (facts.version, facts.cluster) == ("slurm-wlm 22.05.8", "torus")
    assert (main.name, main.time_s, main.nodes, main.is_default, main.closed) == ("main", 7200, None, True, "")
    assert main.kinds == (NodeKind(4, 8, 8000 * 2**20, 2, "v100"),)
    assert (short.time_s, short.is_default) == (120, False)
    assert closed.closed == "its state is DOWN"
    assert facts.topology == {"source": "slurm"}
    assert (facts.accounts, facts.needs_account) == (("lab",), False)


def test_slurm_with_blocks_proposes_them_although_its_plugin_is_called_flat() -> None:
    def ask(argv: Sequence[str]) -> str:
        if " ".join(argv) == "scontrol show topology":
            return (RECORDED / "topology/crusoe.topology.txt").read_text()
        return SLURM(argv).replace("topology/tree", "topology/flat")

    assert slurm_cluster.describe(ask, "labuser").topology == {"source": "slurm"}


def test_slurm_that_forbids_accounting_and_knows_no_switches_is_still_described() -> None:
    facts = slurm_cluster.describe(recorded("slurm/cluster", SLURM_WITHOUT_ACCOUNTS), "labuser")
    assert facts.queues and facts.topology is None and facts.accounts == ()


@pytest.mark.parametrize(
    ("said", "changed", "closed"),
    [
        ("State=UP", "State=DRAIN", "its state is DRAIN"),
        ("RootOnly=NO", "RootOnly=YES", "only root may use it"),
        ("AllowAccounts=ALL", "AllowAccounts=physics,chem", "it is for the accounts physics,chem"),
        ("AllowAccounts=ALL", "AllowAccounts=physics,lab", ""),
    ],
)
def test_a_partition_that_takes_none_of_the_users_jobs_is_closed(said: str, changed: str, closed: str) -> None:
    text = (RECORDED / "slurm/cluster/partitions.txt").read_text().replace(said, changed)
    (main, *_) = slurm_cluster.queues(text, "", ["lab"])
    assert main.closed == closed


@pytest.mark.parametrize(
    ("resources", "gpus", "kind"),
    [
        ("gpu:v100:4(S:0-1)", 4, "v100"),
        ("gpu:4", 4, None),
        ("gpu:a100:2,gpu:h100:2,nvme:1", 4, None),
        ("craynetwork:4", 0, None),
        ("(null)", 0, None),
        ("gpu:2080Ti:4", 4, "2080Ti"),
        ("gpu:4090:2(S:0,2),shard:8", 2, "4090"),
        ("gpu:a100_3g.20gb:2,gpu:a100_1g.5gb:4(S:0-1)", 6, None),
        ("gpu:nvidia_h100_80gb_hbm3:8(S:0-1)", 8, "nvidia_h100_80gb_hbm3"),
        ("gpu:(null):4(IDX:0-3)", 4, None),
        ("gpu:4(IDX:0-3)", 4, None),
        ("gpu:no_consume:2", 2, None),
        ("gres/gpu=4,gres/gpu:tesla=4", 4, "tesla"),
    ],
)
def test_generic_resources_of_slurm(resources: str, gpus: int, kind: str | None) -> None:
    partitions = (RECORDED / "slurm/cluster/partitions.txt").read_text()
    (found, *_) = slurm_cluster.queues(partitions, f"main*|4|8|8000+|{resources}\n")
    assert found.kind == NodeKind(4, 8, 8000 * 2**20, gpus, kind)


def test_gpus_that_are_not_understood_are_said_with_the_text() -> None:
    def slurm(argv: Sequence[str]) -> str:
        return SLURM(argv).replace("gpu:v100:2", "gpu:v100:two:2,gpu:v100:1") if "%G" in argv[-1] else SLURM(argv)

    def gridengine(argv: Sequence[str]) -> str:
        return GRIDENGINE_WITH_GPUS(argv).replace("hc:gpu=2.000000", "hc:gpu=2K")

    assert slurm_cluster.describe(SLURM, "labuser").remarks == ()
    (said,) = slurm_cluster.describe(slurm, "labuser").remarks
    assert said == "`sinfo` lists GPUs that were not understood: 'gpu:v100:two:2'"
    assert facts.describe(gridengine).remarks[-1].endswith("'Host Resource(s):      hc:gpu=2K'")


def test_gridengine_reports_queues_environments_hosts_and_groups() -> None:
    said = facts.describe(GRIDENGINE)
    (queue,) = said.queues
    assert said.version == "SGE 8.1.9"
    assert (queue.name, queue.time_s, queue.closed) == ("all.q", None, "")
    assert queue.environments == ("mpi", "single", "rt_F")
    assert said.environments == {"mpi": 2, "rt_F": 1, "single": 1}
    assert queue.kinds == (NodeKind(4, 2, int(23.5 * 2**30)),)
    assert "rt_F" in said.resources and "num_proc" in said.resources
    assert said.topology == {"source": "gridengine"}
    assert (said.accounts, said.needs_account) == (("gaa50000",), False)


def test_gpus_of_gridengine_are_a_resource_of_the_host_also_while_jobs_use_them() -> None:
    folder = RECORDED / "gridengine/cluster"
    assert facts.gpus((folder / "gpus.txt").read_text()) == {}
    in_use = facts.gpus((folder / "gpus_in_use.txt").read_text())
    assert in_use == {"node1": ("hc", 3), "node2": ("hc", 3), "node3": ("hc", 2)}
    said = facts.describe(GRIDENGINE_WITH_GPUS)
    assert sorted(kind.gpus for kind in said.queues[0].kinds) == [0, 2, 3]
    assert "how many GPUs of node1, node2, node3 are free now" in said.remarks[0] and len(said.remarks) == 1


def test_gpus_of_the_whole_cluster_are_those_of_no_host() -> None:
    listed = facts.gpus((RECORDED / "gridengine/cluster/gpus_global.txt").read_text())
    assert listed == {"node1": ("hc", 3), "node2": ("hc", 3), "node3": ("hc", 2)}


def routes() -> dict[str, Queue]:
    own = {"user": ["pbsuser"], "group": ["users"]}
    return {queue.name: queue for queue in pbs_cluster.describe(PBS_WITH_ROUTES, own).queues}


def test_pbs_reports_queues_and_what_closes_them() -> None:
    facts = pbs_cluster.describe(PBS)
    queues = {queue.name: queue for queue in facts.queues}
    assert (facts.version, facts.cluster) == ("pbs_version 23.06.06", "pbshead")
    assert queues["workq"].is_default and not queues["rt_HF"].is_default
    assert queues["rt_HF"].time_s == 168 * 3600
    assert queues["rt_HF"].kind == NodeKind(4, 8, 64 * 2**30, 4)
    assert queues["rt_disabled"].closed == "it is disabled" and queues["rt_stopped"].closed == "it is stopped"
    assert facts.topology is None and facts.asks_memory


def test_a_routing_queue_has_the_nodes_and_the_widest_limits_of_those_that_it_leads_to() -> None:
    queues = routes()
    assert queues["batch"].is_default and not queues["batch"].closed
    assert queues["batch"].time_s == queues["exec_long"].time_s == 72 * 3600
    assert queues["batch"].nodes is None and queues["exec_short"].nodes == 2
    assert queues["batch"].kinds == queues["exec_short"].kinds == queues["workq"].kinds
    assert queues["away"].kinds == () and not queues["away"].closed, "another server's queues are not known here"


def test_queues_that_take_no_jobs_are_closed() -> None:
    queues = routes()
    assert queues["exec_short"].closed == "only routing queues lead to it"
    assert queues["halted"].closed == "it is stopped"
    assert not queues["chosen"].closed and not queues["hosts"].closed, "access lists of hosts are not read"
    assert queues["special"].closed == "its acl_users leave you out"
    assert queues["physics"].closed == "its acl_groups leave you out"
    assert queues["closed_route"].closed == "it leads to special, and its acl_users leave you out"


def test_routes_in_a_circle_lead_nowhere() -> None:
    listed = {name: {"queue_type": "Route", "route_destinations": f"{to},gone"} for name, to in ("ab", "ba")}
    assert [queue.kinds for queue in pbs_cluster.Queues(listed, {"n": {}}, {}).all()] == [(), ()]


def test_vnodes_of_a_host_are_one_node_of_pbs() -> None:
    facts = pbs_cluster.describe(PBS_WITH_ROUTES)
    queues = {queue.name: queue for queue in facts.queues}
    assert facts.cluster == "pbshead" and facts.topology == {"source": "pbs"}
    assert queues["workq"].kinds == (NodeKind(3, 8, 16 * 2**30, 2, "v100"),), "two have two vnodes, one is offline"
    assert queues["short"].all_nodes == 1, "pn4 is bound to it, and it has no others"
    assert (queues["short"].nodes, queues["short"].time_s) == (2, 120.0)


def test_pbs_knows_the_names_of_resources_without_case() -> None:
    text = (RECORDED / "topology/router.pbsnodes.txt").read_text()
    listed = {name: {"queue_type": "Execution"} for name in ("gpu", "windfall")}
    queues = {queue.name: queue for queue in pbs_cluster.Queues(listed, vnodes_in(text), {}).all()}
    assert [(kind.nodes, kind.cpus, kind.gpus) for kind in queues["gpu"].kinds] == [(1, 8, 2)]
    assert [(kind.nodes, kind.cpus, kind.gpus) for kind in queues["windfall"].kinds] == [(1, 16, 0)]


@pytest.mark.parametrize(
    ("server", "why"),
    [
        (
            "    server_state = Active\n    pbs_version = 6.1.3\n    next_job_number = 4711\n",
            r"TORQUE \(pbs_version 6.1.3",
        ),
        ("    pbs_version = 4.2.10\n", "TORQUE"),
        ("    server_state = Active\n", "neither OpenPBS nor PBS Pro"),
    ],
)
def test_a_relative_of_pbs_is_not_taken_for_it(server: str, why: str) -> None:
    def ask(argv: Sequence[str]) -> str:
        return f"Server: head\n{server}" if "-B" in argv else PBS(argv)

    with pytest.raises(SiteError, match=why):
        pbs_cluster.describe(ask)


def test_nodes_that_pbs_does_not_list_are_said() -> None:
    def ask(argv: Sequence[str]) -> str:
        if argv[0] == "pbsnodes":
            raise SiteError("asking `pbsnodes -av`: no permission")
        return PBS(argv)

    assert pbs_cluster.describe(ask).remarks == ("no nodes are known: asking `pbsnodes -av`: no permission",)


def test_a_warning_before_what_pbs_lists_is_no_node() -> None:
    def warned(argv: Sequence[str]) -> str:
        return f"{argv[0]}: the license expires soon\n{PBS(argv)}"

    assert pbs_cluster.describe(warned) == pbs_cluster.describe(PBS)


@pytest.mark.parametrize("describe", [slurm_cluster.describe, facts.describe, pbs_cluster.describe])
@pytest.mark.parametrize("said", ["", "{}", "command not found", "<?xml version='1.0'?><x/>"])
def test_something_else_is_an_error_in_words(describe: Callable[[Ask], object], said: str) -> None:
    with pytest.raises(SiteError):
        describe(lambda argv: said)


def test_this_machine_is_one_node() -> None:
    facts = scheduler.describe(LOCAL)
    (queue,) = facts.queues
    assert queue.kind == NodeKind(1, 2, 24684084 * 1024) and queue.nodes == 1


@pytest.mark.parametrize(
    ("name", "count", "kind"),
    [("h200", 1, "h200"), ("h200-mig", 2, "h200_2g.35gb"), ("h100-pcie", 1, "h100-pcie"), ("v100", 4, "v100")],
)
def test_the_number_and_type_of_this_machines_gpus(name: str, count: int, kind: str) -> None:
    facts = scheduler.describe(recorded("local", {"nproc": "nproc.txt", "nvidia-smi -L": f"nvidia-smi.{name}.txt"}))
    assert facts.queues[0].kind == NodeKind(1, 2, None, count, kind) and facts.commands == {"nodes": "nvidia-smi"}


def test_gpus_that_differ_or_have_no_letter_have_no_type() -> None:
    assert scheduler.gpu_type("GPU 0: NVIDIA A100 (UUID: GPU-0)\nGPU 1: Tesla T4 (UUID: GPU-1)\n") is None
    assert scheduler.gpu_type("GPU 0: NVIDIA GeForce RTX 4090 (UUID: GPU-A1)\n") is None
    assert scheduler.gpu_type("No devices found.\n") is None


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("02:00:00", 7200), ("2:00", 120), ("30", 1800), ("1-00:00:00", 86400), ("7-12", 7.5 * 86400),
        ("1-06:30", 86400 + 6.5 * 3600), ("168:00:00", 168 * 3600), ("UNLIMITED", None), ("infinite", None),
        ("INFINITY", None), ("", None),
    ],
)  # fmt: skip
def test_time_limits(text: str, seconds: float | None) -> None:
    assert duration_s(text) == seconds
