"""The file of a site from recorded facts: what it says, what told it, what is asked."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.sites.recorded_clusters import GRIDENGINE, LOCAL, PBS, PBS_WITH_ROUTES, SLURM
from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.images.checks.answers import MpiLibrary
from torusrun.orchestrator.images.runtime import Runtime
from torusrun.orchestrator.keys.problems import SpecError
from torusrun.orchestrator.keys.read import read
from torusrun.orchestrator.keys.site import Site
from torusrun.orchestrator.schedulers.cluster_facts import ClusterFacts, NodeKind, Queue
from torusrun.orchestrator.schedulers.gridengine import facts
from torusrun.orchestrator.schedulers.local import scheduler
from torusrun.orchestrator.schedulers.pbs import facts as pbs_cluster
from torusrun.orchestrator.schedulers.slurm import facts as slurm_cluster
from torusrun.orchestrator.sites.choices import Choices
from torusrun.orchestrator.sites.detect import CLUSTERS, KnownCluster, Reached
from torusrun.orchestrator.sites.machine import Adapter, Machine
from torusrun.orchestrator.sites.propose import propose, text

BARE = Machine((), (), None, None, False, False, ())
FULL = Machine(
    (Adapter("mlx5_0", 12.5e9), Adapter("mlx5_1", 12.5e9)),
    ("ib0", "ib1"),
    MpiLibrary("openmpi", "4.1.4"),
    Runtime("/usr/bin/apptainer", "apptainer", (1, 4, 5)),
    True,
    True,
    (),
)
SAID: list[str] = []


def choices(yes: bool = True, **options: str) -> Choices:
    return Choices(options, yes, None, SAID.append)


def site(
    reached: Reached, chosen: Choices, machine: Machine = FULL, known: KnownCluster | None = None
) -> tuple[Site, str]:
    made = text("A site.", propose(reached, known, machine, chosen), reached.facts)
    return read(Site, made, "made.yaml")[0], made


def slurm() -> Reached:
    return Reached("slurm", slurm_cluster.describe(SLURM, "labuser"))


def gridengine() -> Reached:
    return Reached("gridengine", facts.describe(GRIDENGINE))


def pbs() -> Reached:
    return Reached("pbs", pbs_cluster.describe(PBS))


def test_slurm(home: object) -> None:
    made, written = site(slurm(), choices())
    node = made.node
    assert (made.scheduler, made.launcher, made.queue) == ("slurm", "srun", "main")
    assert (node.ranks, node.gpus, node.gpu_type, node.architecture, made.cpus_per_rank) == (2, 2, "v100", "sm_70", 4)
    assert made.request.memory_bytes == 7 * 2**30
    assert (node.interface, node.hcas, node.inter_node_bytes_per_s) == ("ib0", ("mlx5_0", "mlx5_1"), 22.5e9)
    assert made.topology and made.topology.source == "slurm"
    assert (made.container.runtime, made.container.build, made.stage) == (
        "apptainer", "fakeroot", "$TORUSRUN_SCRATCH"
    )  # fmt: skip
    assert "#   closed       closed: its state is DOWN" in written


def test_every_value_says_its_source_or_that_it_is_assumed(home: object) -> None:
    for reached in (slurm(), gridengine(), pbs(), Reached("local", scheduler.describe(LOCAL))):
        _, written = site(reached, choices())
        values = [line for line in written.splitlines() if not line.startswith("#") and not line.endswith(":")]
        assert values and all(line.partition(" # ")[2] for line in values), written


def test_gridengine_asks_by_the_environment_with_most_slots_that_fit_the_cores(home: object) -> None:
    made, _ = site(gridengine(), choices())
    assert (made.ask, made.node.ranks, made.queue, made.launcher) == (("-pe mpi {ranks}",), 2, "all.q", "mpirun")
    other, _ = site(gridengine(), choices(pe="single"))
    assert (other.ask, other.node.ranks) == (("-pe single {ranks}",), 1)


def test_pbs_takes_the_open_queue_that_is_the_servers_default(home: object) -> None:
    made, _ = site(pbs(), choices())
    assert (made.queue, made.node.gpus, made.node.ranks, made.cpus_per_rank) == ("workq", 4, 4, 2)
    assert made.request.memory_bytes == 57 * 2**30


def test_pbs_takes_the_routing_queue_where_users_may_use_nothing_else(home: object) -> None:
    reached = Reached("pbs", pbs_cluster.describe(PBS_WITH_ROUTES))
    made, written = site(reached, choices())
    assert (made.queue, made.node.gpu_type, made.request.memory_bytes) == ("batch", "v100", 14 * 2**30)
    assert "#   exec_long    closed: only routing queues lead to it" in written


def test_a_login_node_without_mpi_and_runtime_loads_their_modules(home: object) -> None:
    listed = ("gcc/12", "openmpi/4.0.5", "openmpi/4.1.6", "singularitypro/3.9")
    machine = Machine((), (), None, None, True, False, listed)
    made, _ = site(gridengine(), choices(), machine)
    assert made.software.modules == ("openmpi/4.1.6", "singularitypro/3.9")
    assert made.container.build == "userns"
    assert site(slurm(), choices(), machine)[0].software.modules == ("singularitypro/3.9",), "srun needs no MPI"


def test_what_several_answers_fit_names_its_option(home: object) -> None:
    with pytest.raises(UserError, match="main, short; name one with --queue, or let --yes choose main"):
        propose(slurm(), None, BARE, choices(yes=False))
    assert site(slurm(), choices(yes=False, queue="short"))[0].queue == "short"
    with pytest.raises(UserError, match="did you mean 'short'"):
        propose(slurm(), None, BARE, choices(queue="shrot"))
    with pytest.raises(UserError, match="there is no such queue"):
        propose(slurm(), None, BARE, choices(queue="closed"))


def test_yes_says_what_it_took(home: object) -> None:
    SAID.clear()
    site(slurm(), choices())
    assert SAID == ["queue: main, of main, short (--queue chooses)"]


def test_a_terminal_is_asked_until_it_answers(home: object) -> None:
    answers = iter(["nosuch", "9", "2"])
    asked = Choices({}, False, lambda prompt: next(answers), SAID.append)
    assert site(slurm(), asked)[0].queue == "short"
    nothing = Choices({}, False, lambda prompt: "", SAID.append)
    assert site(slurm(), nothing)[0].queue == "main"


def test_the_end_of_the_input_is_an_error_in_words(home: object) -> None:
    def ended(prompt: str) -> str:
        raise EOFError

    with pytest.raises(UserError, match="the input ended"):
        site(slurm(), Choices({}, False, ended, SAID.append))


def test_an_account_is_asked_for_where_jobs_need_one(home: object) -> None:
    facts = slurm().facts
    enforced = Reached("slurm", ClusterFacts(**{**vars(facts), "needs_account": True, "accounts": ("a", "b")}))
    assert site(enforced, choices(account="b"))[0].account == "b"
    unknown = Reached("slurm", ClusterFacts(**{**vars(facts), "needs_account": True, "accounts": ()}))
    with pytest.raises(UserError, match="name it with --account"):
        site(unknown, choices())
    assert site(slurm(), choices())[0].account is None


def test_a_known_cluster_fills_in_what_cannot_be_asked(home: object) -> None:
    known = CLUSTERS["abci-v"]
    made, written = site(gridengine(), choices(account="gaa50000"), FULL, known)
    assert (made.ask, made.submit_args) == (("-l rt_F={nodes}",), ("-g", "{account}"))
    assert (made.account, made.node.gpus, made.node.interface) == ("gaa50000", 4, "bond0")
    assert made.queue is None, "the resource decides the queue"
    assert "the site abci-v that ships: whole nodes, 1 to 512 (verified)" in written and "(from memory)" in written


def test_the_report_of_a_known_cluster_comes_before_its_data(home: object) -> None:
    made, _ = site(pbs(), choices(account="gaa50000"), FULL, CLUSTERS["abci-h"])
    assert (made.queue, made.node.gpus, made.node.ranks) == ("rt_HF", 4, 4), "the recorded nodes have four GPUs"
    assert made.software.modules == ("hpcx/2.20",) and made.ask == ("-l select={nodes}:mpiprocs={ranks_per_node}",)


def test_the_modules_that_are_known_come_before_a_guess(home: object) -> None:
    machine = Machine((), (), None, None, True, False, ("openmpi/4.1.6", "singularitypro/4.1"))
    made, _ = site(pbs(), choices(account="gaa50000"), machine, CLUSTERS["abci-h"])
    assert made.software.modules == ("hpcx/2.20",)


def test_a_known_cluster_without_an_account_says_where_to_find_it(home: object) -> None:
    with pytest.raises(UserError, match="--account .*your ABCI group"):
        propose(gridengine(), CLUSTERS["abci-v"], FULL, choices())


names = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=30)


@settings(max_examples=40)
@given(name=names, kind=names, version=names)
def test_no_name_from_a_scheduler_becomes_another_value(name: str, kind: str, version: str) -> None:
    queue = Queue(name, (NodeKind(1, 8, 2**33, 2, kind),), is_default=True)
    commands = {"scheduler": "sinfo --version", "queues": "scontrol", "nodes": "sinfo", "topology": "", "accounts": ""}
    facts = ClusterFacts(version, (queue,), commands=commands)
    made = text("A site.", propose(Reached("slurm", facts), None, BARE, choices(runs="/runs")), facts)
    found: Mapping[str, Any] = yaml.safe_load(made)
    assert found["queue"] == name and found["scheduler"] == "slurm" and set(found["node"]) >= {"ranks", "gpus"}
    try:
        read_back = read(Site, made, "made.yaml")[0]
    except SpecError:
        return  # a name that no site can have is refused before anything is written
    assert read_back.queue == name


def test_the_page_on_sites_shows_what_init_writes(home: object) -> None:
    page = (Path(__file__).parents[3] / "docs" / "guides" / "sites.md").read_text()
    (shown,) = re.findall(r"^```yaml\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    _, written = site(slurm(), choices(runs="/groups/me/runs"))
    assert shown.splitlines()[1:] == written.splitlines()[1:], "the first line has the day on which it was written"
