"""Clusters that torusrun knows: their data agrees with the sites that ship, and they are recognised by what is told."""

import pytest

from tests.unit.sites.recorded_clusters import GRIDENGINE, PBS
from torusrun.orchestrator.keys.load import load_site
from torusrun.orchestrator.schedulers.gridengine import facts
from torusrun.orchestrator.schedulers.pbs import facts as pbs_cluster
from torusrun.orchestrator.sites.detect import CLUSTERS, KnownCluster, Recognition, recognised

CERTAIN, POSSIBLE = Recognition.CERTAIN, Recognition.POSSIBLE
ABCI_H = ("rt_HF", "rt_HG", "rt_HC")
EVERY = list(CLUSTERS.values())


@pytest.mark.parametrize("known", EVERY, ids=lambda known: known.name)
def test_every_value_of_a_known_cluster_is_that_of_the_site_that_ships(known: KnownCluster) -> None:
    settings = {setting.key: setting for setting in known.settings()}
    assert load_site(known.name).scheduler == settings["scheduler"].value
    assert settings["container.build_on"].source.endswith("(from memory)"), "with the remark behind it"


@pytest.mark.parametrize(
    ("scheduler", "host", "names", "gpus", "found"),
    [
        ("gridengine", "es1", (), (), {"abci-v": CERTAIN}),
        ("gridengine", "es-a2.abci.local", (), (), {"abci-a": CERTAIN}),
        ("gridengine", "somewhere", ("rt_F", "rt_G.large", "rt_C.large", "h_rt"), (4,), {"abci-v": CERTAIN}),
        ("gridengine", "somewhere", ("rt_F", "rt_G.large", "rt_C.large", "h_rt"), (), {"abci-v": POSSIBLE}),
        ("gridengine", "login1.t4.gsic.titech.ac.jp", (), (), {"tsubame4": CERTAIN}),
        ("gridengine", "login1", ("node_f", "node_h", "node_q"), (), {"tsubame4": POSSIBLE}),
        ("gridengine", "login1", ("node_f",), (4,), {}),
        ("slurm", "es1", ABCI_H, (8,), {}),
        ("pbs", "login1", (*ABCI_H, "workq"), (), {"abci-h": POSSIBLE}),
        ("pbs", "login1", (*ABCI_H, "workq"), (1, 8), {"abci-h": CERTAIN}),
        ("pbs", "login1", (*ABCI_H, "workq"), (2,), {}),
        ("pbs", "login2.v3.abci.ai", (), (), {"abci-h": CERTAIN}),
    ],
)
def test_a_cluster_is_recognised_by_its_names_and_nodes(
    scheduler: str, host: str, names: tuple[str, ...], gpus: tuple[int, ...], found: dict[str, Recognition]
) -> None:
    assert recognised(scheduler, [host], names, gpus) == found


def test_a_grid_engine_with_one_resource_of_the_same_name_is_another_cluster() -> None:
    said = facts.describe(GRIDENGINE)
    assert "rt_F" in said.resources and recognised("gridengine", ["login1"], said.resources) == {}


def test_a_pbs_with_the_queues_of_abci_and_other_nodes_is_another_cluster() -> None:
    facts = pbs_cluster.describe(PBS)
    queues = [queue.name for queue in facts.queues]
    assert recognised("pbs", ["pbs1"], queues) == {"abci-h": POSSIBLE}
    assert {kind.gpus for queue in facts.queues for kind in queue.kinds} == {4}
    assert recognised("pbs", ["pbs1"], queues, [4]) == {}
