"""The checks of one node: memory, disk, network interface, adapters, runtime, image, and by nvidia-smi its GPUs.

The elements of `nvidia-smi -q -x` differ between drivers. These are read from version 10 to 13 of its document
(nvsmi_device_v13.dtd).
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from torusrun.orchestrator.base import process
from torusrun.orchestrator.base.environment import which
from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.job.load.gpus import restriction
from torusrun.orchestrator.nodes.findings import Judgement, NodeFinding
from torusrun.orchestrator.nodes.judge import ADAPTER, gigabits
from torusrun.orchestrator.nodes.messages import WantedNode
from torusrun.training.files.job_memory import memory
from torusrun.training.meeting.addresses import RendezvousError, address_of_host

RATE = re.compile(r"(\d+(?:\.\d+)?) Gb/sec")
MIB = 1024**2


def machine(wanted: WantedNode) -> Iterator[NodeFinding]:
    yield free_memory(wanted)
    yield free_disk(wanted)
    yield interface(wanted)
    if wanted.runtime:
        yield _present("runtime", wanted.runtime, os.X_OK)
    for image in wanted.images:
        yield _present("image", image, os.R_OK)


def free_memory(wanted: WantedNode, root: Path = Path("/")) -> NodeFinding:
    used_bytes, all_bytes = memory(root)
    return _enough("memory", all_bytes - used_bytes, wanted.free_memory_bytes)


def free_disk(wanted: WantedNode) -> NodeFinding:
    """The free space of the node's own folder for files, which is made later."""
    named = os.path.expandvars(wanted.scratch)
    folder = Path(tempfile.gettempdir() if "$" in named else os.path.expanduser(named))
    while not folder.exists():
        folder = folder.parent
    return _enough(f"disk {folder}", shutil.disk_usage(folder).free, wanted.free_disk_bytes)


def interface(wanted: WantedNode) -> NodeFinding:
    try:
        address = address_of_host(wanted.interface)[1]
    except RendezvousError as error:
        return NodeFinding("interface", Judgement.BAD, str(error))
    return NodeFinding("interface", Judgement.GOOD, address)


def _enough(check: str, free_bytes: float, wanted_bytes: float | None) -> NodeFinding:
    value = f"{free_bytes / MIB:,.0f} MiB free"
    if wanted_bytes is None:
        return NodeFinding(check, Judgement.SKIPPED, value)
    result = Judgement.BAD if free_bytes < wanted_bytes else Judgement.GOOD
    return NodeFinding(check, result, value, f"{wanted_bytes / MIB:,.0f} MiB")


def _present(check: str, path: str, right: int) -> NodeFinding:
    if os.access(path, right):
        return NodeFinding(check, Judgement.GOOD, path)
    return NodeFinding(check, Judgement.BAD, f"{path} cannot be used")


def ports(hcas: Sequence[str], root: Path = Path("/")) -> tuple[list[NodeFinding], dict[str, float]]:
    """Whether a port of each of these adapters is up, and the rates of those that are, in bytes per second.

    An adapter is 'mlx5_0', or 'mlx5_0:1' for one port. The supervisor compares the rates of the nodes.
    """
    findings, rates = [], {}
    for hca in hcas:
        check = f"{ADAPTER} {hca}"
        rate, states = _best(hca, root)
        if rate is None:
            findings.append(NodeFinding(check, Judgement.BAD, states or "missing", "ACTIVE, LinkUp"))
        else:
            rates[check] = rate
            findings.append(NodeFinding(check, Judgement.GOOD, gigabits(rate)))
    return findings, rates


def _best(hca: str, root: Path) -> tuple[float | None, str]:
    """The highest rate of the adapter's ports that are up, in bytes per second (None without one), and their states."""
    adapter, _, port = hca.partition(":")
    rates, states = [], []
    for folder in sorted((root / "sys/class/infiniband" / adapter / "ports").glob(port or "*")):
        state, physical, rate = (_read(folder / name) for name in ("state", "phys_state", "rate"))
        states.append(f"port {folder.name} is {state}, {physical}")
        if "ACTIVE" in state and "LinkUp" in physical and (speed := RATE.match(rate)):
            rates.append(float(speed[1]) * 1e9 / 8)
    return max(rates, default=None), ", ".join(states)


def _read(path: Path) -> str:
    """'ACTIVE' from '4: ACTIVE'; '' if the file cannot be read."""
    try:
        return path.read_text().strip().rpartition(": ")[2]
    except OSError:
        return ""


ANSWER_S = 20.0  # without persistence mode the driver is loaded by the first query
BOTH_S = 24.0  # for two queries, less than ALONE_S of node.py
FROM_SMI, NVLINK = ("gpus", "ecc", "throttling", "pcie"), "nvlink"
NO_SMI = "there is no nvidia-smi"
NOT_KNOWN = "nvidia-smi does not show exactly the job's GPUs"
# Reasons for lower clocks that mean heat or a lack of power; others, such as an idle GPU, are usual.
HOT = ("hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "sw_thermal_slowdown")
REPAIRS = (
    "retired_pages/pending_retirement", "remapped_rows/remapped_row_pending", "remapped_rows/remapped_row_failure",
    "ecc_errors/channel_repair_pending", "ecc_errors/tpc_repair_pending", "gpu_reset_status/reset_required",
)  # fmt: skip
UNCORRECTED = re.compile(r".*_uncorrectable.*|double_bit")  # double_bit/total before driver 418
LINK = re.compile(r"^\s+Link \d+: .*GB/s\s*$")  # of a link that is not active: <inactive>


@dataclass(frozen=True)
class GpuHealth:
    """The driver's answer about one GPU. `errors` are uncorrected ECC errors since the driver was loaded."""

    address: str
    errors: int = 0
    repairs: tuple[str, ...] = ()
    hot: tuple[str, ...] = ()
    lanes: int | None = None


def gpu_health(text: str) -> tuple[GpuHealth, ...]:
    """The GPUs in the output of `nvidia-smi -q -x`. Raises ValueError if it is something else."""
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise ValueError(f"this is not the output of nvidia-smi -q -x: {error}") from None
    return tuple(_gpu(element) for element in root.iter("gpu"))


def _gpu(gpu: ElementTree.Element) -> GpuHealth:
    reasons = [*gpu.iterfind("clocks_event_reasons/*"), *gpu.iterfind("clocks_throttle_reasons/*")]
    active = (reason.tag for reason in reasons if _text(reason) == "Active")
    names = [re.sub("^clocks_(event|throttle)_reason_", "", tag) for tag in active]
    errors = [error for error in gpu.iterfind("ecc_errors/volatile/*") if UNCORRECTED.fullmatch(error.tag)]
    return GpuHealth(
        gpu.get("id", ""),
        errors=sum(map(_count, errors)),
        repairs=tuple(path.rpartition("/")[2] for path in REPAIRS if _text(gpu.find(path)) == "Yes"),
        hot=tuple(name for name in names if name in HOT),
        lanes=_lane_count(_text(gpu.find("pci/pci_gpu_link_info/link_widths/current_link_width"))),
    )


def _text(element: ElementTree.Element | None) -> str:
    return (element.text or "").strip() if element is not None else ""


def _count(element: ElementTree.Element) -> int:
    text = _text(element) or _text(element.find("total"))
    return int(text) if text.isdecimal() else 0


def _lane_count(text: str) -> int | None:
    """16 for '16x'; None for 'N/A'."""
    match = re.fullmatch(r"(\d+)x", text)
    return int(match[1]) if match else None


def nvlinks(text: str) -> dict[str, int]:
    """GPU -> how many of its links are active, from the output of `nvidia-smi nvlink -s`."""
    count: dict[str, int] = {}
    for line in text.splitlines():
        if line.startswith("GPU "):
            gpu = line.partition(":")[0]
            count[gpu] = 0
        elif count and LINK.match(line):
            count[gpu] += 1
    return count


def gpus(wanted: WantedNode) -> tuple[list[NodeFinding], dict[str, float]]:
    """The findings about a node's GPUs, and the numbers to compare with other nodes: 'pcie' or 'nvlink' and a GPU."""
    began_s = time.monotonic()
    try:
        shown = _shown()
    except SiteError as error:  # it hangs if a GPU is faulty
        why = str(error).partition(process.WAS_RUNNING)[0]
        return [NodeFinding("gpus", Judgement.BAD, why, str(wanted.gpus))], {}
    except ValueError as error:
        return [*_skipped((*FROM_SMI, NVLINK), str(error))], {}
    findings = [*judged(shown, wanted)]
    if len(shown) != wanted.gpus:
        return [*findings, *_skipped((NVLINK,), NOT_KNOWN)], {}
    links = {f"pcie {gpu.address}": float(gpu.lanes) for gpu in shown if gpu.lanes is not None}
    try:
        left_s = BOTH_S - (time.monotonic() - began_s)
        done = process.run(["nvidia-smi", "nvlink", "-s", *restriction(os.environ)], timeout_s=left_s)
    except SiteError as error:
        return [*findings, *_skipped((NVLINK,), str(error))], links
    count = nvlinks(done.stdout)
    if len(count) == len(shown):  # both are in the driver's order
        links |= {f"nvlink {gpu.address}": float(of_gpu) for gpu, of_gpu in zip(shown, count.values(), strict=True)}
    return [*findings, linked(count)], links


def _shown() -> Sequence[GpuHealth]:
    """The GPUs that nvidia-smi shows to this job.

    Raises SiteError if nvidia-smi fails, ValueError if the GPUs cannot be checked.
    """
    if not which("nvidia-smi"):
        raise ValueError(NO_SMI)
    if "MIG-" in os.environ.get("CUDA_VISIBLE_DEVICES", ""):
        raise ValueError("the job has parts of GPUs (MIG)")
    done = process.run(["nvidia-smi", "-q", "-x", *restriction(os.environ)], timeout_s=ANSWER_S)
    if done.exit_code:
        raise SiteError((done.stdout.strip() or done.stderr.strip() or "nvidia-smi failed").splitlines()[-1])
    return gpu_health(done.stdout)


def judged(shown: Sequence[GpuHealth], wanted: WantedNode) -> Iterator[NodeFinding]:
    """The findings from the answer of nvidia-smi."""
    missing = len(shown) < wanted.gpus
    yield NodeFinding("gpus", _bad_if(missing), str(len(shown)), str(wanted.gpus))
    if len(shown) != wanted.gpus:
        yield from _skipped(FROM_SMI[1:], NOT_KNOWN)
        return
    errors = [f"{gpu.address} has {gpu.errors} uncorrected errors" for gpu in shown if gpu.errors]
    repairs = [f"{gpu.address} has {name}" for gpu in shown for name in gpu.repairs]
    yield NodeFinding("ecc", _bad_if(errors or repairs), ", ".join([*errors, *repairs]) or "no errors", "no errors")
    hot = [f"{gpu.address} has {', '.join(gpu.hot)}" for gpu in shown if gpu.hot]
    yield NodeFinding("throttling", _bad_if(hot), ", ".join(hot) or "none", "none")
    yield _lanes(shown)


def _lanes(shown: Sequence[GpuHealth]) -> NodeFinding:
    """The PCIe lanes of the GPUs, which the supervisor compares with those of other nodes."""
    known = sorted({gpu.lanes for gpu in shown if gpu.lanes is not None})
    result = Judgement.GOOD if known else Judgement.SKIPPED
    return NodeFinding("pcie", result, ", ".join(map(str, known)) or "unknown")


def linked(count: Mapping[str, int]) -> NodeFinding:
    """The active NVLinks, which the supervisor compares with those of other nodes."""
    if not any(count.values()):
        return NodeFinding(NVLINK, Judgement.SKIPPED, "no NVLink")
    numbers = ", ".join(map(str, sorted({*count.values()})))
    return NodeFinding(NVLINK, Judgement.GOOD, f"{numbers} active")


def _bad_if(wrong: object) -> Judgement:
    return Judgement.BAD if wrong else Judgement.GOOD


def _skipped(checks: Sequence[str], why: str) -> Iterator[NodeFinding]:
    yield from (NodeFinding(check, Judgement.SKIPPED, why) for check in checks)
