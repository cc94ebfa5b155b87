"""Output of schedulers' commands that is cut off, mixed with something else, or of another version: no traceback."""

import contextlib
import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.errors import SiteError, UserError
from orchestrator.schedulers import gridengine_cluster, local_cluster, pbs_cluster, slurm_cluster
from orchestrator.schedulers.cluster_facts import ClusterFacts
from orchestrator.sites.choices import Choices
from orchestrator.sites.detect import Reached
from orchestrator.sites.machine import Machine
from orchestrator.sites.propose import propose
from orchestrator.sites.text import text
from tests.unit.sites.recorded_clusters import GRIDENGINE, LOCAL, PBS, PBS_WITH_SWITCHES, SLURM, Ask

DESCRIBED: dict[str, tuple[Callable[[Ask], ClusterFacts], Ask]] = {
    "slurm": (lambda ask: slurm_cluster.describe(ask, "labuser"), SLURM),
    "gridengine": (gridengine_cluster.describe, GRIDENGINE),
    "pbs": (pbs_cluster.describe, PBS_WITH_SWITCHES),
    "local": (local_cluster.describe, LOCAL),
}
BARE = Machine((), (), None, None, False, False, ())
YES = Choices({"runs": "/runs"}, True, None, lambda text: None)
KEYS = ["queue_type", "resources_max", "enabled", "resources_available", "queue"]
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


def written(name: str, ask: Ask) -> None:
    """The file of a site from what `ask` says, or an error in words."""
    with contextlib.suppress(SiteError, UserError):
        text("A site.", propose(Reached(name, DESCRIBED[name][0](ask)), None, BARE, YES))


def test_a_flood_of_one_word_is_an_error_soon() -> None:
    with pytest.raises(SiteError, match="shows no partition: 'xxx"):
        slurm_cluster.queues("x" * 3_000_000, "")


@pytest.mark.parametrize("name", DESCRIBED)
@settings(max_examples=40)
@given(data=st.data())
def test_damaged_output_makes_a_site_or_an_error(name: str, data: st.DataObject) -> None:
    start, length = data.draw(st.floats(0, 1)), data.draw(st.integers(0, 400))
    other = data.draw(st.text(st.characters(exclude_categories=("Cs",)), max_size=20))

    def damaged(argv: Sequence[str]) -> str:
        said = DESCRIBED[name][1](argv)
        at = int(start * len(said))
        return said[:at] + other + said[at + length :]

    written(name, damaged)


@settings(max_examples=40)
@given(value=json_values, key=st.sampled_from(KEYS))
def test_json_of_pbs_with_values_of_other_types(value: Any, key: str) -> None:
    def changed(argv: Sequence[str]) -> str:
        held = json.loads(PBS(argv))
        for section in ("Queue", "nodes"):
            for record in held.get(section, {}).values():
                if key in record or section == "nodes":
                    record[key] = value
                if isinstance(held_resources := record.get("resources_available"), dict):
                    others = {"ncpus": value, "ngpus": value, "mem": value, "Qlist": value}
                    record["resources_available"] = {**held_resources, **others}
        return json.dumps(held)

    written("pbs", changed)


@settings(max_examples=40)
@given(value=json_values)
def test_json_of_pbs_that_is_something_else(value: Any) -> None:
    written("pbs", lambda argv: json.dumps({"Queue": value, "nodes": value, "Server": value}))
