"""What a preflight finds on one node, from recorded outputs, and what all findings together mean."""

from __future__ import annotations

import os
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.unit.verbs import Patch
from torusrun.orchestrator.base.states import Cause, State
from torusrun.orchestrator.job import connection
from torusrun.orchestrator.keys.request import Resources
from torusrun.orchestrator.keys.site import Node, Site
from torusrun.orchestrator.nodes import checks, node, pair
from torusrun.orchestrator.nodes.findings import Judgement, MeasuredPair, NodeFinding, NodeFindings, PreflightRecord
from torusrun.orchestrator.nodes.judge import ANSWER, compared, judge
from torusrun.orchestrator.nodes.messages import WantedNode, wanted
from torusrun.orchestrator.show.advice import ADVICE
from torusrun.training.meeting.addresses import listen

RECORDED = Path(__file__).parent / "recorded" / "preflight"
GOOD, BAD, SKIPPED = Judgement.GOOD, Judgement.BAD, Judgement.SKIPPED


def recorded(name: str) -> str:
    return (RECORDED / name).read_text()


def of_gpus(text: str, want: int, **limits: int) -> dict[str, NodeFinding]:
    found = checks.judged(checks.gpu_health(text), WantedNode(gpus=want, **limits))
    return {finding.check: finding for finding in found}


@pytest.mark.parametrize(("name", "count"), [("a5000.xml", 2), ("a100.xml", 1), ("t4.xml", 1)])
def test_healthy_gpus_of_every_version_of_the_document(name: str, count: int) -> None:
    found = of_gpus(recorded(name), count)
    assert [finding.check for finding in found.values()] == [*checks.FROM_SMI]
    assert {finding.result for finding in found.values()} == {GOOD}


def test_a_missing_gpu_is_named() -> None:
    found = of_gpus(recorded("a100.xml"), 4)
    assert found["gpus"] == NodeFinding("gpus", BAD, "1", "4")
    nodes = [NodeFindings("n1", (found["gpus"],)), NodeFindings("n2", (NodeFinding("gpus", GOOD, "4", "4"),))]
    assert judge(nodes, [], least_bytes_per_s=None, took_s=1.0).why == "n1 (gpus: 1, wanted 4)"


@pytest.mark.parametrize(
    ("check", "before", "after", "says"),
    [
        (
            "ecc",
            "<sram_uncorrectable_secded>N/A<",
            "<sram_uncorrectable_secded>3<",
            "00000000:81:00.0 has 3 uncorrected",
        ),
        ("ecc", "<remapped_row_failure>No<", "<remapped_row_failure>Yes<", "00000000:81:00.0 has remapped_row_failure"),
        ("ecc", "<sram_correctable>N/A<", "<sram_correctable>9<", ""),  # corrected
        ("throttling", "hw_slowdown>Not Active<", "hw_slowdown>Active<", "00000000:81:00.0 has hw_slowdown"),
        ("throttling", "sw_power_cap>Not Active<", "sw_power_cap>Active<", ""),  # usual under load
        ("pcie", "<current_link_width>16x<", "<current_link_width>8x<", ""),  # a narrow slot; see the limit below
    ],
)
def test_a_faulty_gpu_is_named(check: str, before: str, after: str, says: str) -> None:
    text = recorded("a5000.xml")
    assert before in text
    found = of_gpus(text.replace(before, after, 1), 2)[check]
    assert found.result is (BAD if says else GOOD) and says in found.value


def test_old_drivers_count_double_bit_errors() -> None:
    old = "<double_bit><device_memory>1</device_memory><total>2</total></double_bit>"
    text = recorded("t4.xml").replace("<sram_uncorrectable>0</sram_uncorrectable>", old, 1)
    assert of_gpus(text, 1)["ecc"].value == "00000000:00:1E.0 has 2 uncorrected errors"
    assert of_gpus(recorded("t4.xml"), 1)["pcie"] == NodeFinding("pcie", GOOD, "8")
    with pytest.raises(ValueError, match="not the output of nvidia-smi -q -x"):
        checks.gpu_health("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.")


def test_active_nvlinks_are_counted() -> None:
    assert checks.nvlinks(recorded("nvlink.v100.txt")) == {"GPU 3": 4}
    mixed = checks.linked(checks.nvlinks(recorded("nvlink.gb200.txt")))
    assert (mixed.result, mixed.value) == (GOOD, "2, 18 active"), "a bridged pair and a single GPU"
    assert checks.linked({}).result is checks.linked({"GPU 0": 0}).result is SKIPPED


def test_gpus_are_compared_with_the_same_ones_of_other_nodes() -> None:
    usual = {"pcie 00000000:81:00.0": 16, "pcie 00000000:C1:00.0": 8, "nvlink 00000000:81:00.0": 12}
    worse = {**usual, "pcie 00000000:81:00.0": 8, "nvlink 00000000:81:00.0": 10}
    well = tuple(NodeFinding(check, GOOD, "16") for check in ("pcie", "nvlink"))
    nodes = [NodeFindings(f"n{number}", well, links=worse if number < 2 else usual) for number in range(5)]
    evidence = (
        "pcie: 00000000:81:00.0 has 8, wanted 16 as on most nodes",
        "nvlink: 00000000:81:00.0 has 10, wanted 12 as on most nodes",
    )

    def bad(of: list[NodeFindings]) -> object:
        return judge(compared(of), [], least_bytes_per_s=None, took_s=1.0).bad

    assert bad(nodes) == {"n0": evidence, "n1": evidence}
    assert not bad(nodes[1:3]) and not bad(nodes[:4]), "no majority"


def test_only_the_gpus_of_the_job_are_judged(tmp_path: Path, monkeypatch: Patch) -> None:
    (tmp_path / "two.xml").write_text(recorded("a5000.xml").replace("failure>No<", "failure>Yes<", 1))
    links = "".join(f"GPU {n}: NVIDIA RTX A5000 (UUID: GPU-{n})\n\t Link 0: 14.062 GB/s\n" for n in range(2))
    (tmp_path / "links").write_text(links)
    smi = f"case $1 in -q) exec cat {tmp_path}/two.xml;; nvlink) exec cat {tmp_path}/links;; esac"
    (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\n{smi}\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def found(count: int) -> tuple[dict[str, Judgement], object]:
        on_node = node.alone(WantedNode(gpus=count), "n1")
        return {finding.check: finding.result for finding in on_node.findings}, on_node.links

    every = (*checks.FROM_SMI, "nvlink")
    results, compare = found(2)
    assert {check: results[check] for check in every} == {**dict.fromkeys(every, GOOD), "ecc": BAD}
    both = ("00000000:81:00.0", "00000000:C1:00.0")
    assert compare == {f"pcie {gpu}": 16 for gpu in both} | {f"nvlink {gpu}": 1 for gpu in both}
    results, compare = found(1)
    assert {check: results[check] for check in every} == {**dict.fromkeys(every, SKIPPED), "gpus": GOOD}
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-1,MIG-2")
    assert {found(2)[0][check] for check in every} == {SKIPPED} and not compare


def test_a_node_without_nvidia_smi_skips_its_checks_and_one_that_fails_is_bad(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert {
        found.result for found in node.alone(WantedNode(gpus=4), "n1").findings if found.check in checks.FROM_SMI
    } == {SKIPPED}
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\necho 'No devices were found'\nexit 6\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    assert checks.gpus(WantedNode(gpus=4)) == ([NodeFinding("gpus", BAD, "No devices were found", "4")], {})


def test_a_check_that_hangs_is_bad_and_holds_nothing() -> None:
    over = threading.Event()
    made: dict[str, node.Check] = {
        "hangs": lambda: [NodeFinding("never", GOOD, str(over.wait()))],
        "fails": lambda: [checks.free_memory(WantedNode(), Path("/nowhere"))],
        "well": lambda: [NodeFinding("well", GOOD, "1")],
    }
    found = {finding.check: finding.result for finding in node.all_of(made, limit_s=5.0)}
    over.set()
    assert found == {"hangs": BAD, "fails": SKIPPED, "well": GOOD}


def adapter(root: Path, name: str, port: int = 1, rate: str = "100 Gb/sec (4X EDR)", state: str = "4: ACTIVE") -> None:
    """The files of a port, as sysfs has them (the kernel's Documentation/ABI/stable/sysfs-class-infiniband)."""
    folder = root / "sys/class/infiniband" / name / "ports" / str(port)
    folder.mkdir(parents=True)
    physical = "5: LinkUp" if "ACTIVE" in state else "3: Disabled"
    for file, text in (("rate", rate), ("state", state), ("phys_state", physical)):
        (folder / file).write_text(f"{text}\n")


def test_the_ports_of_the_adapters(tmp_path: Path) -> None:
    adapter(tmp_path, "mlx5_0")
    adapter(tmp_path, "mlx5_1", rate="25 Gb/sec (1X EDR)")
    adapter(tmp_path, "mlx5_2", state="1: DOWN")
    found, rates = checks.ports(["mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3"], tmp_path)
    assert [finding.result for finding in found] == [GOOD, GOOD, BAD, BAD]
    assert found[1].words == "infiniband mlx5_1: 25 Gbit/s"
    assert "port 1 is DOWN, Disabled" in found[2].value and found[3].value == "missing"
    assert rates == {"infiniband mlx5_0": 12.5e9, "infiniband mlx5_1": 3.125e9}
    adapters = ({"infiniband mlx5_0": 12.5e9 if number else 3.125e9} for number in range(3))
    nodes = [NodeFindings(f"n{number}", (), links) for number, links in enumerate(adapters)]
    assert judge(compared(nodes), [], least_bytes_per_s=None, took_s=1.0).bad == {
        "n0": ("infiniband mlx5_0: 25 Gbit/s, wanted 100 Gbit/s as on most nodes",)
    }


def test_memory_disk_interface_runtime_and_image(tmp_path: Path) -> None:
    own = {"scratch": str(tmp_path / "new"), "runtime": "/bin/sh", "images": ("/bin/sh",)}
    all_found = checks.machine(WantedNode(interface="lo", free_memory_bytes=1.0, **own))
    well = {found.check.partition(" ")[0]: found.result for found in all_found}
    assert well == dict.fromkeys(("memory", "disk", "interface", "runtime", "image"), GOOD)
    of_pyxis = [found.check for found in checks.machine(WantedNode(scratch=str(tmp_path), images=("/bin/sh",)))]
    assert "image" in of_pyxis and "runtime" not in of_pyxis
    (plain := tmp_path / "plain").touch()
    badly = checks.machine(WantedNode(
        interface="ib9", free_memory_bytes=1e18, free_disk_bytes=1e18, runtime=str(plain), images=(str(tmp_path / "x"),)
    ))  # fmt: skip
    assert [found.result for found in badly] == [BAD] * 5


def test_what_is_wanted_follows_from_the_site() -> None:
    site = Site(
        scheduler="slurm", launcher="srun", node=Node(gpus=4, hcas=("mlx5_0",)), request=Resources(memory_bytes=1000)
    )
    assert wanted(site) == WantedNode(
        gpus=4, hcas=("mlx5_0",), free_memory_bytes=500.0, free_disk_bytes=256 * 1024**2, scratch="$TORUSRUN_SCRATCH"
    )


def test_a_check_that_all_nodes_fail_blames_none_and_is_reported() -> None:
    few = NodeFinding("gpus", BAD, "4", "8")
    silent = NodeFinding(ANSWER, BAD, "none, while most nodes answered")
    skips = NodeFinding("gpus", SKIPPED, "there is no nvidia-smi")
    nodes = [NodeFindings(*of) for of in (("a", (few,)), ("b", (few,)), ("c", (silent,)), ("d", (skips,)))]
    record = judge(nodes, [], least_bytes_per_s=None, took_s=1.0)
    assert record.bad == {"c": (silent.words,)}, "neither a silent node nor one that skips a check disproves it"
    assert record.remarks == ("all 2 hosts that could be checked fail gpus: 4, wanted 8: no host is blamed",)
    two = [NodeFindings(host, (silent,)) for host in "ab"]
    assert set(judge(two, [], least_bytes_per_s=None, took_s=1.0).bad) == {"a", "b"}
    assert judge([NodeFindings("a", (few,))], [], least_bytes_per_s=None, took_s=1.0).bad == {"a": (few.words,)}


def test_a_record_of_slow_links_is_read_as_it_was_written(tmp_path: Path) -> None:
    speeds = {"ab": 1e8, "ac": 1e8, "bc": 2e9}
    pairs = [MeasuredPair(n, *hosts, speed) for n, (hosts, speed) in enumerate(speeds.items())]
    record = judge([NodeFindings(host) for host in "abc"], pairs, least_bytes_per_s=None, took_s=1.25)
    assert record.why == "a (link: 0.8 Gbit/s at most, to 2 nodes, wanted 5.333 Gbit/s)"
    record.write(tmp_path / "preflight.json")
    assert PreflightRecord.read(tmp_path / "preflight.json") == record
    assert PreflightRecord.read(tmp_path / "none.json") is None
    two = judge([NodeFindings("a"), NodeFindings("b")], pairs[:1], least_bytes_per_s=1e9, took_s=1.0)
    assert not two.bad and two.remarks == ("slow link: a and b: 0.8 Gbit/s",)


def test_the_bandwidth_of_a_pair_is_measured_by_those_who_know_the_token() -> None:
    listener, token, rates = listen("lo"), os.urandom(pair.TOKEN_BYTES), list[float]()

    def other() -> None:
        rates.append(pair.received(pair.accept(listener, token), 1.0))

    thread = threading.Thread(target=other)
    thread.start()
    strangers = [socket.create_connection(listener.getsockname()) for _ in range(20)]  # who are silent
    strangers[0].sendall(token[:9])
    strangers[1].close()
    with pytest.raises(OSError):
        pair.call(*listener.getsockname(), os.urandom(pair.TOKEN_BYTES))
    rates.append(pair.received(pair.call(*listener.getsockname(), token), 1.0))
    thread.join()
    listener.close()
    assert len(rates) == 2 and min(rates) > 1e6, rates


def test_a_stranger_who_sends_while_another_takes_its_place_does_not_end_a_measurement(monkeypatch: Patch) -> None:
    monkeypatch.setattr(connection, "MOST_LINKS", 1)
    listener, token = listen("lo"), os.urandom(pair.TOKEN_BYTES)
    strangers = [socket.create_connection(listener.getsockname()) for _ in range(3)]
    for stranger in strangers:
        stranger.sendall(b"a")
    with ThreadPoolExecutor() as pool:
        calling = pool.submit(pair.call, *listener.getsockname(), token)
        link, call = pair.accept(listener, token), calling.result()
    assert link.getpeername() == call.getsockname()
    for each in (*strangers, call, link, listener):
        each.close()


def test_the_cause_of_a_bad_host_has_a_state_and_advice() -> None:
    assert Cause.BAD_HOST.state is State.NODE_FAIL and Cause.of(State.NODE_FAIL) is Cause.HOST_LOST
    lines = ADVICE[Cause.BAD_HOST].lines("r", "/f", ["n3"])
    assert any("--exclude n3" in line for line in lines)
