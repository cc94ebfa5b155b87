"""What Grid Engine is asked for: the directives of a job, and the words of qsub."""

import re
from pathlib import Path

import pytest

from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.schedulers.gridengine.scheduler import GridEngine
from torusrun.orchestrator.schedulers.interface import Request

ENGINE = GridEngine("labuser")


def request(**changes: object) -> Request:
    values = dict(
        name="digits-1", nodes=4, ranks_per_node=2, cpus_per_rank=3, gpus_per_node=2, memory_bytes=3 * 2**30,
        time_s=3690.5, queue="main.q", account="lab", ask=("-pe mpi 8",), extra=("-m n",),
        stdout=Path("/r/job.out"), stderr=Path("/r/job.err"),
    )  # fmt: skip
    return Request(**{**values, **changes})  # type: ignore[arg-type]


def test_the_directives() -> None:
    assert ENGINE.directives(request()) == [
        f"#$ {option}" for option in (
            "-N digits-1", "-pe mpi 8", "-l h_rt=01:01:31", "-S /bin/bash", "-j y", "-o /dev/null", "-notify", "-r n",
            "-l mem_free=1536M", "-q main.q", "-P lab", "-m n",
        )
    ]  # fmt: skip


def test_the_directives_of_an_array_that_waits() -> None:
    lines = ENGINE.directives(request(after=("7",), after_any=("9",), array=20, parallel=4))
    assert {"#$ -hold_jid 7,9", "#$ -t 1-20", "#$ -tc 4"} <= set(lines)


def test_hosts_are_left_out_by_name() -> None:
    assert "#$ -l hostname=!(n3|n7)" in ENGINE.directives(request(exclude=("n3", "n7")))


def test_a_job_of_one_slot_need_not_say_how_it_gets_it() -> None:
    one = request(nodes=1, ranks_per_node=1, cpus_per_rank=1, gpus_per_node=0, ask=())
    assert not any("-pe" in line for line in ENGINE.directives(one))


@pytest.mark.parametrize("more", [{"nodes": 2}, {"ranks_per_node": 2}, {"cpus_per_rank": 2}, {"gpus_per_node": 1}])
def test_a_site_without_ask_gets_the_way_to_write_it(more: dict[str, int]) -> None:
    one = dict(nodes=1, ranks_per_node=1, cpus_per_rank=1, gpus_per_node=0, ask=())
    with pytest.raises(UserError, match=r'ask: \["-pe NAME \{ranks\}"\].*ask: \["-l rt_F=\{nodes\}"\]'):
        ENGINE.directives(request(**{**one, **more}))


def test_an_option_that_a_directive_cannot_hold_is_refused() -> None:
    with pytest.raises(UserError, match="submit_args"):
        ENGINE.directives(request(extra=("-ac color=#fff",)))


def test_blanks_stay_in_one_word() -> None:
    assert '#$ -P "group 1"' in ENGINE.directives(request(account="group 1"))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"queue": 'a b" -l evil=1 "c'}, "holds '\"': Grid Engine's directives cannot contain a quote"),
        ({"account": "it's"}, "'account': \"it's\" holds"),
        ({"account": "a\\"}, "cannot contain a quote or a backslash"),
        ({"queue": "a#b"}, "Grid Engine's directives end there"),
        ({"queue": "-x"}, "begins with '-'"),
        ({"name": "a\n-q x"}, "a directive is one line"),
        ({"account": "a" * 2100}, "may have 2000 bytes"),
    ],
)
def test_a_value_that_a_directive_cannot_carry_is_refused(changes: dict[str, object], says: str) -> None:
    with pytest.raises(UserError, match=re.escape(says)):
        ENGINE.directives(request(**changes))


def test_a_job_does_not_store_all_of_a_logins_environment() -> None:
    command = ENGINE.submit_command(Path("/r/job.sh"), request())
    assert "-V" not in command, "qstat -j would show everybody the keys and tokens of a login"
    assert command[command.index("-v") + 1] == "PATH,LD_LIBRARY_PATH"


def test_what_a_site_says_to_qsub_itself_comes_before_the_script() -> None:
    command = ENGINE.submit_command(Path("/r/job.sh"), request(submit_args=("-g", "gaa50000")))
    assert command == ["qsub", "-terse", "-v", "PATH,LD_LIBRARY_PATH", "-g", "gaa50000", "/r/job.sh"]


def test_no_arguments_pass_through_a_shell() -> None:
    assert "-b" not in ENGINE.submit_command(Path("/r/job.sh"), request()), "qsub -b y: a login shell reads them again"
