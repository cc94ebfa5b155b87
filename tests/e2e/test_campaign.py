"""A sample of the campaign of faults (tests/campaign): kinds that are not in test_faults.py."""

import pytest

from tests.campaign import table
from tests.campaign.schedule import schedule
from tests.campaign.trial import carry_out
from tests.e2e.pbs_place import PBS
from tests.e2e.places import Place

pytestmark = pytest.mark.lab  # also on this machine: its runs take minutes
SEED = 11
SAMPLE = {
    "local": ["kill-shell", "resume-races", "stop-rank"],
    "slurm": ["link-cut-other"],
    "gridengine": ["kill-wrapper"],
    "pbs": ["outside-cancel"],
}
PLANNED = schedule(SEED, sum(map(len, SAMPLE.values())), SAMPLE)


@pytest.mark.parametrize("kind", sorted({planned.kind for planned in PLANNED}))
def test_a_fault_is_reported_correctly_and_the_resume_is_bit_identical(
    place: Place, kind: str, request: pytest.FixtureRequest
) -> None:
    planned = [p for p in PLANNED if (p.place, p.kind) == (place.cluster, kind)]
    if not planned:
        pytest.skip("tried in another place")
    if place.cluster == "pbs" and (reason := PBS.why_no_harm()):
        pytest.skip(reason)
    row = carry_out(place, planned[0], request.getfixturevalue("undisturbed"))
    assert row.good, f"{table.line(row)}\n{table.wrong(row)}\n{row.evidence}"
