"""Checks the GPUs of a node: their number, memory errors, heat, PCIe lanes, NVLinks, and the driver's messages."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from orchestrator.base import process
from orchestrator.base.environment import which
from orchestrator.base.errors import SiteError
from orchestrator.job.load.gpus import restriction
from orchestrator.job.preflight import nvidia_smi
from orchestrator.job.preflight.nvidia_smi import GpuHealth
from orchestrator.job.preflight.order import WantedNode
from orchestrator.runs.folder.node_findings import Judgement, NodeFinding

ANSWER_S = 20.0  # without persistence mode the driver is loaded by the first query
RECENT_S = 86_400.0
XID = re.compile(r"^\[ *(\d+\.\d+)\] NVRM: Xid \(([^)]*)\): (\d+), ?(.*)$", re.MULTILINE)
# Faults of the hardware in NVIDIA's "XID Errors": 48 and 64 memory, 74 NVLink, 79 off the bus, 95 uncontained memory,
# 119 and 120 its processor. Others, such as 13, 31 and 43, come from programs.
FAULTS = (48, 64, 74, 79, 95, 119, 120)
FROM_SMI = ("gpus", "ecc", "throttling", "pcie")


def gpus(wanted: WantedNode) -> Iterator[NodeFinding]:
    """The number of GPUs and their health, by nvidia-smi."""
    if not which("nvidia-smi"):
        yield from _skipped(FROM_SMI, "there is no nvidia-smi")
        return
    try:
        done = process.run(["nvidia-smi", "-q", "-x", *restriction(os.environ)], timeout_s=ANSWER_S)
    except SiteError as error:  # it hangs if a GPU is faulty
        yield NodeFinding("gpus", Judgement.BAD, str(error).partition(process.WAS_RUNNING)[0], str(wanted.gpus))
        return
    if done.exit_code:
        said = (done.stdout.strip() or done.stderr.strip() or "nvidia-smi failed").splitlines()[-1]
        yield NodeFinding("gpus", Judgement.BAD, said, str(wanted.gpus))
        return
    try:
        yield from judged(nvidia_smi.gpus(done.stdout), wanted)
    except ValueError as error:
        yield from _skipped(FROM_SMI, str(error))


def judged(found: Sequence[GpuHealth], wanted: WantedNode) -> Iterator[NodeFinding]:
    """The findings from the answer of nvidia-smi."""
    missing = len(found) < wanted.gpus
    yield NodeFinding("gpus", _bad_if(missing), str(len(found)), str(wanted.gpus))
    errors = [f"{gpu.address} has {gpu.errors} uncorrected errors" for gpu in found if gpu.errors]
    repairs = [f"{gpu.address} has {name}" for gpu in found for name in gpu.repairs]
    yield NodeFinding("ecc", _bad_if(errors or repairs), ", ".join([*errors, *repairs]) or "no errors", "no errors")
    hot = [f"{gpu.address} has {', '.join(gpu.hot)}" for gpu in found if gpu.hot]
    yield NodeFinding("throttling", _bad_if(hot), ", ".join(hot) or "none", "none")
    yield _lanes(found, wanted.pcie_lanes)


def _lanes(found: Sequence[GpuHealth], wanted: int | None) -> NodeFinding:
    """The PCIe lanes of the GPUs. Without a limit, each must have as many as the one with the most in this node."""
    known = [gpu.lanes for gpu in found if gpu.lanes is not None]
    least = wanted or max(known, default=0)
    narrow = [f"{gpu.address} has {gpu.lanes}" for gpu in found if gpu.lanes is not None and gpu.lanes < least]
    result = _bad_if(narrow) if known else Judgement.SKIPPED
    return NodeFinding("pcie", result, ", ".join(narrow) or (f"{min(known)}" if known else "unknown"), f"{least} lanes")


def nvlinks(wanted: WantedNode) -> Iterator[NodeFinding]:
    """The NVLinks that are active, by nvidia-smi."""
    if not which("nvidia-smi"):
        yield from _skipped(["nvlink"], "there is no nvidia-smi")
        return
    done = process.run(["nvidia-smi", "nvlink", "-s", *restriction(os.environ)], timeout_s=ANSWER_S)
    yield linked(done.stdout, wanted.nvlinks)


def linked(text: str, wanted: int | None) -> NodeFinding:
    """The finding about NVLinks. Without a limit, each GPU must have as many as the one with the most in this node."""
    count = {gpu: nvidia_smi.active(states) for gpu, states in nvidia_smi.links(text).items()}
    least = wanted or max(count.values(), default=0)
    if not count or not least:
        return NodeFinding("nvlink", Judgement.SKIPPED, "no NVLink")
    few = [f"{gpu} has {links} active" for gpu, links in count.items() if links < least]
    return NodeFinding("nvlink", _bad_if(few), ", ".join(few) or f"{least} active", f"{least} active")


def messages() -> Iterator[NodeFinding]:
    """The driver's messages about faults of the hardware, in the kernel's log of the last day."""
    if not which("dmesg"):
        yield from _skipped(["xid"], "there is no dmesg")
        return
    done = process.run(["dmesg"], timeout_s=ANSWER_S)
    if done.exit_code:  # the kernel may keep it from ordinary users
        yield from _skipped(["xid"], (done.stderr.strip() or "dmesg failed").splitlines()[-1])
        return
    up_s = float(Path("/proc/uptime").read_text().split()[0])
    yield faults(done.stdout, up_s)


def faults(text: str, up_s: float) -> NodeFinding:
    """The finding about the driver's messages in the kernel's log, at `up_s` seconds after its start."""
    recent = [f"Xid {xid} of {gpu}: {said}" for at_s, gpu, xid, said in XID.findall(text)
              if int(xid) in FAULTS and up_s - float(at_s) < RECENT_S]  # fmt: skip
    return NodeFinding("xid", _bad_if(recent), recent[-1] if recent else "none", "none")


def _bad_if(wrong: object) -> Judgement:
    return Judgement.BAD if wrong else Judgement.GOOD


def _skipped(checks: Sequence[str], why: str) -> Iterator[NodeFinding]:
    yield from (NodeFinding(check, Judgement.SKIPPED, why) for check in checks)
