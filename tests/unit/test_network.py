"""The network that NCCL chose, read from its own words, and told by the run's state."""

from pathlib import Path

import pytest

from torusrun.orchestrator.base.states import State, Status
from torusrun.orchestrator.job.relay import HEAD_BYTES, NetworkWatch, chosen
from torusrun.orchestrator.job.start.launch_order import told_network
from torusrun.orchestrator.run.folder import ledger
from torusrun.orchestrator.run.folder.events import NetworkChosen, Started, Submitting
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.state.record import read_record

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
