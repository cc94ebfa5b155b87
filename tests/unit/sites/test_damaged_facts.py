"""Output of schedulers' commands that is cut off, mixed with something else, or of another version: no traceback."""

import contextlib
from collections.abc import Callable, Sequence

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.sites.recorded_clusters import GRIDENGINE, LOCAL, PBS_WITH_ROUTES, SLURM, Ask
from torusrun.orchestrator.base.errors import SiteError, UserError
from torusrun.orchestrator.keys.problems import SpecError
from torusrun.orchestrator.keys.read import read
from torusrun.orchestrator.keys.site import Site
from torusrun.orchestrator.schedulers.cluster_facts import ClusterFacts
from torusrun.orchestrator.schedulers.gridengine import facts
from torusrun.orchestrator.schedulers.local import scheduler
from torusrun.orchestrator.schedulers.pbs import facts as pbs_cluster
from torusrun.orchestrator.schedulers.slurm import facts as slurm_cluster
from torusrun.orchestrator.sites.choices import Choices
from torusrun.orchestrator.sites.detect import Reached
from torusrun.orchestrator.sites.machine import Machine
from torusrun.orchestrator.sites.propose import propose, text

DESCRIBED: dict[str, tuple[Callable[[Ask], ClusterFacts], Ask]] = {
    "slurm": (lambda ask: slurm_cluster.describe(ask, "labuser"), SLURM),
    "gridengine": (facts.describe, GRIDENGINE),
    "pbs": (pbs_cluster.describe, PBS_WITH_ROUTES),
    "local": (scheduler.describe, LOCAL),
}
BARE = Machine((), (), None, None, False, False, ())
YES = Choices({"runs": "/runs"}, True, None, lambda text: None)


def test_a_flood_of_one_word_is_an_error_soon() -> None:
    with pytest.raises(SiteError, match="shows no partition: 'xxx"):
        slurm_cluster.queues("x" * 3_000_000, "")


@pytest.mark.parametrize("name", DESCRIBED)
@settings(max_examples=40)
@given(data=st.data())
def test_damaged_output_makes_the_file_of_a_site_or_an_error(name: str, data: st.DataObject) -> None:
    start, length = data.draw(st.floats(0, 1)), data.draw(st.integers(0, 400))
    other = data.draw(st.text(st.characters(exclude_categories=("Cs",)), max_size=20))

    def damaged(argv: Sequence[str]) -> str:
        said = DESCRIBED[name][1](argv)
        at = int(start * len(said))
        return said[:at] + other + said[at + length :]

    try:
        found = Reached(name, DESCRIBED[name][0](damaged))
        written = text("A site.", propose(found, None, BARE, YES), found.facts)
    except (SiteError, UserError) as error:
        assert str(error)
        return
    values = yaml.safe_load(written)
    assert values["scheduler"] == name and values["runs"] == "/runs"
    with contextlib.suppress(SpecError):  # a name that no site can have is refused before anything is written
        assert read(Site, written, "site.yaml")[0].scheduler == name
