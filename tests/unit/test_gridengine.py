"""Grid Engine's commands and parsers, from what a real 8.1.9 answered to these very commands (recorded/gridengine)."""

import re
from pathlib import Path

import pytest

from orchestrator.errors import SiteError, UserError
from orchestrator.process import Finished
from orchestrator.schedulers.gridengine import GridEngine
from orchestrator.schedulers.seam import Request

RECORDED = Path(__file__).parent / "recorded" / "gridengine"
ENGINE = GridEngine("alice")
IDS = [str(n) for n in range(1, 1001)]


def recorded(name: str) -> Finished:
    text = (RECORDED / f"{name}.txt").read_text()
    match = re.fullmatch(r"\$ (.*)\n\[exit status (\d+)\]\n\[stdout\]\n(.*)\[stderr\]\n(.*)", text, re.DOTALL)
    assert match, f"{name}: not a recording"
    return Finished(tuple(match[1].split()), int(match[2]), match[3], match[4])


def request(**changes: object) -> Request:
    values = dict(
        name="digits-1", nodes=4, ranks_per_node=2, cpus_per_rank=3, gpus_per_node=2, memory_bytes=3 * 2**30,
        time_s=3690.5, queue="main.q", account="lab", ask=("-pe mpi 8",), extra=("-m n",),
        stdout=Path("/r/job.out"), stderr=Path("/r/job.err"),
    )  # fmt: skip
    return Request(**{**values, **changes})  # type: ignore[arg-type]


def qstat(state: str, **elements: str) -> Finished:
    """qstat about one job in this state."""
    inner = "".join(f"<{name}>{text}</{name}>" for name, text in {"state": state, **elements}.items())
    job = f"<job_list><JB_job_number>5</JB_job_number>{inner}</job_list>"
    return Finished(("qstat",), 0, f"<job_info><job_info>{job}</job_info></job_info>", "")


def qacct(**values: str) -> Finished:
    """qacct about one job whose record holds these values."""
    lines = [f"{key:<12} {value}" for key, value in {"jobnumber": "5", **values}.items()]
    return Finished(("qacct",), 0, "\n".join(["=" * 62, *lines, ""]), "")


def test_the_directives() -> None:
    assert ENGINE.directives(request()) == [
        f"#$ {option}" for option in (
            "-N digits-1", "-pe mpi 8", "-l h_rt=1:01:31", "-S /bin/bash", "-j y", "-o /dev/null", "-notify", "-r n",
            "-l mem_free=1536M", "-q main.q", "-P lab", "-m n",
        )
    ]  # fmt: skip


def test_the_directives_of_an_array_that_waits() -> None:
    lines = ENGINE.directives(request(after=("7", "9"), array=20, parallel=4))
    assert {"#$ -hold_jid 7,9", "#$ -t 1-20", "#$ -tc 4"} <= set(lines)


def test_a_job_of_one_slot_need_not_say_how_it_gets_it() -> None:
    one = request(nodes=1, ranks_per_node=1, cpus_per_rank=1, gpus_per_node=0, ask=())
    assert not any("-pe" in line for line in ENGINE.directives(one))


@pytest.mark.parametrize("more", [{"nodes": 2}, {"ranks_per_node": 2}, {"cpus_per_rank": 2}, {"gpus_per_node": 1}])
def test_a_site_that_does_not_say_how_it_gives_nodes_hears_how_to(more: dict[str, int]) -> None:
    one = dict(nodes=1, ranks_per_node=1, cpus_per_rank=1, gpus_per_node=0, ask=())
    with pytest.raises(UserError, match=r'ask: \["-pe NAME \{ranks\}"\].*ask: \["-l rt_F=\{nodes\}"\]'):
        ENGINE.directives(request(**{**one, **more}))


def test_an_option_that_a_directive_cannot_hold_is_refused() -> None:
    with pytest.raises(UserError, match="submit_args"):
        ENGINE.directives(request(extra=("-ac color=#fff",)))


def test_blanks_stay_in_one_word() -> None:
    assert '#$ -P "group 1"' in ENGINE.directives(request(account="group 1"))


def test_what_a_site_says_to_qsub_itself_comes_before_the_script() -> None:
    command = ENGINE.submit_command(Path("/r/job.sh"), request(submit_args=("-g", "gaa50000")))
    assert command == ["qsub", "-terse", "-V", "-g", "gaa50000", "/r/job.sh"]


@pytest.mark.parametrize(("said", "job"), [("16\n", "16"), ("20.1-3:1\n", "20"), ("a site's greeting\n17\n", "17")])
def test_the_id_of_a_submitted_job(said: str, job: str) -> None:
    assert ENGINE.job_id(said) == job


def test_no_id_says_where_to_look() -> None:
    with pytest.raises(SiteError, match="see qstat"):
        ENGINE.job_id("Your job 28 has been submitted\n")


def test_tasks_count_from_1_to_grid_engine() -> None:
    assert ENGINE.task_id("12", 3) == "12.4"
