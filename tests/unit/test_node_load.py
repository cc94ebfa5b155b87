"""The load of a node and the network that NCCL chose: read from recorded files and logs, and written beside them."""

from __future__ import annotations

import fcntl
import gc
import json
import os
import resource
import secrets
import shutil
import socket
from collections.abc import Collection
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.clock import Clock
from tests.waiting import until
from torusrun.orchestrator.base.states import State, Status
from torusrun.orchestrator.job.load import gpus, monitor
from torusrun.orchestrator.job.load.monitor import Look, Monitor, look
from torusrun.orchestrator.job.load.step_times import BeatFile, StepsTold
from torusrun.orchestrator.job.ranks.beginning import LeftBehind
from torusrun.orchestrator.job.relay import HEAD_BYTES, NetworkWatch, chosen
from torusrun.orchestrator.job.start.launch_order import told_network
from torusrun.orchestrator.run.folder import ledger
from torusrun.orchestrator.run.folder.at_work import GpuLoad, NodeLoad, RankSteps
from torusrun.orchestrator.run.folder.events import NetworkChosen, Started, Submitting
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.state.record import read_record
from torusrun.training.files import job_memory
from torusrun.training.reporting import heartbeat
from torusrun.training.reporting.heartbeat import TELL_S, StepTimes

RECORDED = Path(__file__).parent / "recorded" / "load"
MEMINFO_TOTAL, MEMINFO_AVAILABLE = 24684084 * 1024, 21629804 * 1024
TOKEN = secrets.token_hex(32)
LOAD = NodeLoad(
    1000.5, 5.0, 4, 0.5, 1e9, 2e9,
    (GpuLoad(0, 0.9, 1e9, 2e9, 250.0), GpuLoad(1)),
    (RankSteps(0, 999.0, 120, 0.5, 0.7, 0.25), RankSteps(1, 999.0, 120, 0.5, 0.7)),
)  # fmt: skip


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """A copy of the recorded machine, which a test may change."""
    return Path(shutil.copytree(RECORDED, tmp_path / "node"))


def test_the_share_of_time_in_which_the_cores_of_a_job_worked() -> None:
    stat = (RECORDED / "proc/stat").read_text()
    second = monitor.cpu_time(stat, {1})
    assert second == monitor.CpuTime(
        34477 + 79644 + 114141 + 1042 + 144, 34477 + 79644 + 114141 + 105680 + 604 + 1042 + 144
    )
    assert monitor.cpu_time(stat, {0, 1}).all == monitor.cpu_time(stat, {0}).all + second.all
    assert monitor.CpuTime(130, 400).share(monitor.CpuTime(100, 300)) == 0.3
    assert second.share(second) is None


def test_memory_is_that_of_the_group_with_the_lowest_limit(node: Path) -> None:
    assert job_memory.memory(node) == (155222016 - 150003712, 536870912)
    (node / "sys/fs/cgroup/memory/job/memory.limit_in_bytes").write_text("9223372036854771712\n")
    assert job_memory.memory(node) == (MEMINFO_TOTAL - MEMINFO_AVAILABLE, MEMINFO_TOTAL)


def test_memory_of_groups_of_version_2(node: Path) -> None:
    """The files are made as cgroup-v2.rst describes them; a step has the limit of its job, and the job is told."""
    (node / "proc/self/cgroup").write_text("0::/system.slice/job_7/step_0\n")
    job = node / "sys/fs/cgroup/unified/system.slice/job_7"
    (job / "step_0").mkdir(parents=True)
    for folder, used, cached in ((job, 3_000_000, 1_000_000), (job / "step_0", 2_000_000, 500_000)):
        (folder / "memory.max").write_text("8000000\n")
        (folder / "memory.current").write_text(f"{used}\n")
        (folder / "memory.stat").write_text(f"anon 1\nfile 2\ninactive_anon 3\ninactive_file {cached}\n")
    assert job_memory.memory(node) == (2_000_000, 8_000_000)
    (job / "memory.max").write_text("max\n")
    assert job_memory.memory(node) == (1_500_000, 8_000_000)


def test_memory_of_groups_that_are_mounted_from_within(node: Path) -> None:
    """In a container the mount may show the group of the job as the root."""
    mountinfo = node / "proc/self/mountinfo"
    mountinfo.write_text(mountinfo.read_text().replace("/ /sys/fs/cgroup/memory", "/job /sys/fs/cgroup/memory/job"))
    assert job_memory.memory(node)[1] == 536870912


def test_nvidia_smi_is_asked_about_the_gpus_of_the_job_and_reports_them() -> None:
    seven = gpus.gpus((RECORDED / "nvidia-smi.seven.csv").read_text())
    assert seven[4] == GpuLoad(4, 0.0, 360 * 2**20, 16384 * 2**20, 31.07) and len(seven) == 7
    busy = gpus.gpus((RECORDED / "nvidia-smi.busy.csv").read_text())
    assert busy[1] == GpuLoad(1, 0.81, 7850 * 2**20, None, 850.17)
    assert gpus.gpus((RECORDED / "nvidia-smi.gb10.csv").read_text()) == (GpuLoad(0, 0.05, None, None, 12.98),)
    assert gpus.command({"CUDA_VISIBLE_DEVICES": "0,2"})[-1] == "--id=0,2"
    assert not [word for word in gpus.command({"CUDA_VISIBLE_DEVICES": "NoDevFiles"}) if "id=" in word]


@pytest.mark.parametrize("said", ["", "No devices were found\n", "NVIDIA-SMI has failed because it couldn't ...\n"])
def test_an_answer_without_a_table_reports_no_gpus(said: str) -> None:
    with pytest.raises(ValueError, match="not the output of nvidia-smi"):
        gpus.gpus(said)


def test_a_look_at_a_node_without_a_result(tmp_path: Path) -> None:
    assert monitor.look({0}, tmp_path) == Look(None, None)


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    LOAD.write(tmp_path / "load.json")
    assert NodeLoad.read(tmp_path / "load.json") == LOAD
    assert NodeLoad.read(tmp_path / "none.json") is None


@pytest.mark.parametrize(
    "change",
    [
        {"cores": 1.5}, {"cores": None}, {"busy": "1"}, {"busy": float("nan")}, {"busy": True}, {"busy": -1},
        {"busy": 1e300}, {"gpus": {}}, {"gpus": [1]}, {"gpus": [{}]}, {"ranks": [{}] * 5000},
    ],
    ids=str,
)  # fmt: skip
def test_a_record_of_somebody_else_is_not_believed(tmp_path: Path, change: dict[str, object]) -> None:
    path = tmp_path / "load.json"
    LOAD.write(path)
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    assert NodeLoad.read(path) is None


@given(st.floats(0, 1e6), st.none() | st.floats(0, 10))
def test_a_rank_computes_no_less_than_nothing(step_s: float, waited: float | None) -> None:
    computed_s = RankSteps(0, 1.0, 1, step_s, step_s, waited).computed_s
    assert (computed_s is None) == (waited is None) and (computed_s is None or 0 <= computed_s <= step_s)


@pytest.fixture
def told(tmp_path: Path) -> StepsTold:
    return StepsTold(heartbeat.address(TOKEN), [3, 4], BeatFile(tmp_path / "beat.json"))


def hear(told: StepsTold) -> tuple[RankSteps, ...]:
    told._hear()
    return told.newest()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(heartbeat, "time", made)
    return made


def test_ranks_tell_the_mean_and_the_longest_of_their_steps(told: StepsTold, clock: Clock) -> None:
    times = StepTimes(3, TOKEN)
    times.add(1, 1, 0.5, 0.25, 0.1)
    (first,) = hear(told)
    assert (first.rank, first.step, first.step_s, first.waited, first.read) == (3, 1, 0.5, 0.5, 0.2)
    clock.sleep(TELL_S / 2)
    times.add(3, 2, 4.0, 1.0)
    assert hear(told) == (first,), "they are told of rarely"
    clock.sleep(TELL_S / 2)
    times.add(4, 1, 1.0, 0.5)
    (second,) = hear(told)
    assert (second.step, second.step_s, second.largest_s, second.waited) == (4, round(5 / 3, 6), 2.0, 0.3)
    clock.sleep(TELL_S)
    times.add(5, 1, 1.0, None)
    (third,) = hear(told)
    assert (third.waited, third.read) == (None, 0.0), "what was reported before does not count again"
    told.close()


def test_a_rank_that_nobody_listens_to_continues_and_is_heard_later(
    told: StepsTold, clock: Clock, tmp_path: Path
) -> None:
    told.close()
    times = StepTimes(3, TOKEN)
    times.add(1, 1, 0.5, 0.25)
    later = StepsTold(heartbeat.address(TOKEN), [3], BeatFile(tmp_path / "beat.json"))
    clock.sleep(TELL_S)
    times.add(2, 1, 1.5, 0.75)
    (heard,) = hear(later)
    assert (heard.step, heard.step_s) == (2, 1.5)
    later.close()


@pytest.mark.parametrize(
    "said",
    [
        b"", b"{", b"[]", b"x" * 5000, b'{"rank": 3}',
        b'{"rank": 7, "step": 1, "step_s": 1, "largest_s": 1, "waited": 0}',
    ],
)  # fmt: skip
def test_what_no_rank_of_this_node_would_say_is_passed_over(told: StepsTold, said: bytes) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
        out.sendto(said, heartbeat.address(TOKEN))
    assert hear(told) == ()
    told.close()


@pytest.mark.needs("users")
def test_what_another_user_says_is_passed_over(told: StepsTold) -> None:
    child = os.fork()
    if not child:
        os.setuid(65534)
        StepTimes(3, TOKEN).add(1, 1, 0.5, 0.25)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert hear(told) == ()
    StepTimes(3, TOKEN).add(1, 1, 0.5, 0.25)
    assert len(hear(told)) == 1
    told.close()


def test_the_monitor_writes_this_node_and_ends_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(monitor, "LEAST_S", 0.1)
    monkeypatch.setattr(monitor, "FIRST_S", 0.1)
    monkeypatch.setattr(monitor, "END_S", 300.0)
    attempt = RunFolder(tmp_path).attempt(1)
    attempt.ranks.mkdir(parents=True)
    attempt.config.write_text(json.dumps({"token": TOKEN}))
    with Monitor(attempt, [0, 1], 1, os.sched_getaffinity(0)) as running:

        def with_steps() -> NodeLoad | None:
            StepTimes(1, TOKEN).add(7, 1, 0.5, 0.25)
            load = NodeLoad.read(attempt.node_load(0))
            return load if load and load.ranks else None

        load = until(with_steps, "a record with the steps of a rank")
    assert not running._thread.is_alive()
    assert load.cores == len(os.sched_getaffinity(0)) and load.memory_total_bytes
    assert [rank.rank for rank in load.ranks] == [1]
    assert not list(attempt.ranks.glob(".*")), "nothing may be left half-written"


def test_a_disk_that_takes_nothing_ends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(monitor, "LEAST_S", 0.01)
    monkeypatch.setattr(monitor, "FIRST_S", 0.01)
    looks: list[Look] = []

    def counted(cores: Collection[int]) -> Look:
        looks.append(look(cores))
        return looks[-1]

    monkeypatch.setattr(monitor, "look", counted)
    attempt = RunFolder(tmp_path).attempt(1)  # its folder is not there
    with Monitor(attempt, [0], 1, {0}):
        until(lambda: len(looks) > 3, "records that cannot be written")
        attempt.ranks.mkdir(parents=True)
        until(attempt.node_load(0).exists, "the record, once it can be written")


def test_an_nvidia_smi_that_hangs_is_ended_and_delays_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started = tmp_path / "started"
    (tmp_path / "nvidia-smi").write_text(
        f"#!/bin/sh\necho $$ > {started}.new; mv {started}.new {started}; exec sleep 1000\n"
    )
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(gpus, "ANSWER_S", 0.5)
    watch = gpus.GpuWatch(5.0)
    until(started.exists, "nvidia-smi to be asked")
    pid = int(started.read_text())
    assert watch.newest() == ()
    watch.close()
    until(lambda: not Path(f"/proc/{pid}").exists(), "nvidia-smi to be ended")
    watch._thread.join(300)
    assert not watch._thread.is_alive()


def test_attempts_in_one_process_leave_no_descriptors(tmp_path: Path) -> None:
    """The keeper of a held allocation stays for all attempts."""

    def both() -> None:
        monitor = Monitor(RunFolder(tmp_path).attempt(1), [0], 1, {0})
        with monitor:
            pass
        monitor._thread.join(300)
        left = LeftBehind()
        left.begun()
        assert left.wait(300.0)

    both()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        both()
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= before, "close both ends of every pipe"


def test_a_process_with_more_than_1024_descriptors_waits_for_what_is_left_behind() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard <= 2000:
        pytest.skip(f"this machine gives a process {hard} descriptors at most")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2001), hard))
    left = LeftBehind()
    low, left._end = left._end, fcntl.fcntl(left._end, fcntl.F_DUPFD_CLOEXEC, 2000)
    os.close(low)
    left.begun()
    try:
        assert left.wait(300.0)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


# The network that NCCL chose, read from its own words, and told by the run's state.


# NVIDIA/nccl issue 676, NCCL 2.11.4.
SOCKET = """gpu01:124172:124172 [0] NCCL INFO Bootstrap : Using enp225s0f1:10.10.10.2<0>
gpu01:124172:124172 [0] NCCL INFO NCCL_SOCKET_IFNAME set by environment to en
gpu01:124172:124172 [0] NCCL INFO NET/Socket : Using [0]enp225s0f1:10.10.10.2<0>
gpu01:124172:124172 [0] NCCL INFO Using network Socket
NCCL version 2.11.4+cuda11.4
"""
# NVIDIA/nccl-tests issue 185, NCCL 2.19.3.
IB = """dgxh100-4:460770:460770 [0] NCCL INFO cudaDriverVersion 12000
NCCL version 2.19.3+cuda12.3
dgxh100-4:460770:460842 [0] NCCL INFO NET/IB : Using [0]mlx5_10:1/RoCE [1]mlx5_11:1/RoCE [RO]; OOB enp220s0np0:11.1.128.136<0>
dgxh100-4:460770:460842 [0] NCCL INFO Using non-device net plugin version 0
dgxh100-4:460770:460842 [0] NCCL INFO Using network IB
"""  # noqa: E501
# NVIDIA/nccl issue 1357.
PLUGIN = "qh100-gpu19:49355:49414 [1] NCCL INFO Using network IBext\n"


@pytest.mark.parametrize(
    ("said", "network"),
    [(SOCKET, "Socket"), (IB, "IB"), (PLUGIN, "IBext"), ("", None)],
    ids=["sockets", "InfiniBand", "a plug-in", "nothing"],
)
def test_the_network_is_what_nccl_says(said: str, network: str | None) -> None:
    assert chosen(said) == network
    assert chosen(f"epoch 1\n{said}") == network


def test_nothing_is_concluded_before_nccl_has_chosen() -> None:
    assert chosen("\n".join(SOCKET.splitlines()[:3])) is None


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    made = RunFolder(tmp_path / "run")
    made.attempt(1).logs.mkdir(parents=True)
    ledger.append(made.ledger, Submitting(1, "x"))
    ledger.append(made.ledger, Started(1, "7", ("g1", "g2"), (1, 2)))
    return made


def events(run: RunFolder) -> list[str]:
    return [event.network for event in ledger.events(run.ledger) if isinstance(event, NetworkChosen)]


def test_a_log_that_grows_is_read_once(run: RunFolder) -> None:
    watch = NetworkWatch(run, run.attempt(1), wanted=True)
    watch.look()
    log = run.attempt(1).rank_log(0)
    for at in range(0, len(SOCKET), 50):
        with open(log, "a") as file:
            file.write(SOCKET[at : at + 50])
        watch.look()
    log.write_text(IB)
    watch.look()
    assert events(run) == ["Socket"]


def test_only_the_head_of_a_log_is_read(run: RunFolder) -> None:
    watch = NetworkWatch(run, run.attempt(1), wanted=True)
    run.attempt(1).rank_log(0).write_text("x" * HEAD_BYTES + "\n" + SOCKET)
    watch.look()
    watch.look()
    assert events(run) == []


def test_a_site_without_adapters_is_not_queried(run: RunFolder) -> None:
    run.attempt(1).rank_log(0).write_text(SOCKET)
    NetworkWatch(run, run.attempt(1), wanted=False).look()
    assert events(run) == [] and told_network(()) == {}
    assert told_network(("mlx5_0",), {}) == {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET"}
    assert told_network(("mlx5_0",), {}, {"NCCL_DEBUG": "WARN"}) == {}


@pytest.mark.parametrize(("network", "told"), [("Socket", True), ("IB", False), ("IBext", False)])
def test_the_state_of_a_run_reports_sockets(run: RunFolder, network: str, told: bool) -> None:
    ledger.append(run.ledger, NetworkChosen(1, network))
    for state in (State.RUNNING, State.COMPLETED):
        view = read_record(run).view(Status(state, ""), 0.0)
        assert ("NCCL uses sockets, not the site's InfiniBand" in view.remarks) is told
        assert view.as_json()["network"] == network


def test_a_ledger_that_takes_no_line_ends_nothing(run: RunFolder) -> None:
    run.ledger.unlink(missing_ok=True)
    run.ledger.mkdir()
    run.attempt(1).rank_log(0).write_text(SOCKET)
    NetworkWatch(run, run.attempt(1), wanted=True).look()


@pytest.mark.parametrize(
    ("own", "file", "text"),
    [
        ("4:memory:/slurm/job_7/step_0", "sys/fs/cgroup/memory/slurm/job_7/step_0/memory.oom_control", "under_oom 0\n"),
        ("0::/job_7/step_0", "sys/fs/cgroup/job_7/step_0/memory.events", "oom 3\n"),
    ],
    ids=["v1", "v2"],
)
def test_the_kernels_kills_for_lack_of_memory_are_those_of_the_own_group(
    own: str, file: str, text: str, tmp_path: Path
) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    mounts = ["26 20 0:5 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory"]
    mounts = mounts if own.startswith("4") else ["26 20 0:5 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw"]
    both = [own, *(["0::/"] if own.startswith("4") else [])]
    mounts += ["27 20 0:6 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw"] if len(both) > 1 else []
    (tmp_path / "proc/self/mountinfo").write_text("\n".join(mounts) + "\n")
    (tmp_path / "proc/self/cgroup").write_text("\n".join(both) + "\n")
    assert job_memory.kills(tmp_path) == 0
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_text(f"{text}oom_kill 2\n")
    assert job_memory.kills(tmp_path) == 2
    (tmp_path / file).write_text(text)
    assert job_memory.kills(tmp_path) == job_memory.kills(tmp_path / "nowhere") == 0
