"""Clusters that torusrun knows: their data agrees with the sites that ship, and they are recognised by what is told."""

import pytest

from orchestrator.schedulers import gridengine_cluster, pbs_cluster
from orchestrator.sites.clusters import KnownCluster, clusters, recognised
from orchestrator.spec.load import load_site
from tests.unit.sites.recorded_clusters import GRIDENGINE, PBS

EVERY = list(clusters().values())


@pytest.mark.parametrize("known", EVERY, ids=lambda known: known.name)
def test_every_value_of_a_known_cluster_has_a_mark_and_a_source(known: KnownCluster) -> None:
    assert set(known.marks) == set(known.values), "a mark for each value, and none for others"
    assert load_site(known.name).scheduler == known.scheduler
    assert all(setting.source for setting in known.settings())


@pytest.mark.parametrize(
    ("scheduler", "host", "names", "found"),
    [
        ("gridengine", "es1", (), ["abci-v"]),
        ("gridengine", "es-a2.abci.local", (), ["abci-a"]),
        ("gridengine", "somewhere", ("rt_F", "rt_G.large", "rt_C.large", "h_rt"), ["abci-v"]),
        ("gridengine", "login1.t4.gsic.titech.ac.jp", (), ["tsubame4"]),
        ("gridengine", "login1", ("node_f", "node_h", "node_q"), ["tsubame4"]),
        ("gridengine", "login1", ("node_f",), []),
        ("slurm", "es1", ("rt_HF", "rt_HG", "rt_HC"), []),
        ("pbs", "login1", ("rt_HF", "rt_HG", "rt_HC", "workq"), ["abci-h"]),
    ],
)
def test_a_cluster_is_recognised_by_its_names(
    scheduler: str, host: str, names: tuple[str, ...], found: list[str]
) -> None:
    assert [known.name for known in recognised(scheduler, [host], names)] == found


def test_a_grid_engine_with_one_resource_of_the_same_name_is_another_cluster() -> None:
    facts = gridengine_cluster.describe(GRIDENGINE)
    assert "rt_F" in facts.resources and recognised("gridengine", ["login1"], facts.resources) == []


def test_a_pbs_with_the_queues_of_abci_is_taken_for_it() -> None:
    facts = pbs_cluster.describe(PBS)
    (known,) = recognised("pbs", ["pbs1"], [queue.name for queue in facts.queues])
    assert known.name == "abci-h"
