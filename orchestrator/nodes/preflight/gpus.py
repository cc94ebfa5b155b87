"""Checks the GPUs of a node: their number, memory errors, heat, PCIe lanes, NVLinks, and the driver's messages."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from pathlib import Path

from torusrun.orchestrator.base import process
from torusrun.orchestrator.base.environment import which
from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.job.load.gpus import restriction
from torusrun.orchestrator.nodes.preflight import nvidia_smi
from torusrun.orchestrator.nodes.preflight.nvidia_smi import GpuHealth
from torusrun.orchestrator.nodes.preflight.order import WantedNode
from torusrun.orchestrator.run.folder.node_findings import Judgement, NodeFinding

ANSWER_S = 20.0  # without persistence mode the driver is loaded by the first query
RECENT_S = 86_400.0
XID = re.compile(r"^\[ *(\d+\.\d+)\] NVRM: Xid \(([^)]*)\): (\d+), ?(.*)$", re.MULTILINE)
# Faults of the hardware in NVIDIA's "XID Errors": 48 and 64 memory, 74 NVLink, 79 off the bus, 95 uncontained memory,
# 119 and 120 its processor. Others, such as 13, 31 and 43, come from programs.
FAULTS = (48, 64, 74, 79, 95, 119, 120)
FROM_SMI = ("gpus", "ecc", "throttling", "pcie")
NO_SMI = "there is no nvidia-smi"
NOT_KNOWN = "nvidia-smi does not show exactly the job's GPUs"


class Gpus:
    """The checks of a node's GPUs, each in a thread of its own.

    `links` has what is compared with other nodes: 'pcie' or 'nvlink' and a GPU -> its number.
    """

    def __init__(self, wanted: WantedNode) -> None:
        self._wanted = wanted
        self._own: Future[Sequence[GpuHealth]] = Future()
        self.links: dict[str, int] = {}

    def health(self) -> list[NodeFinding]:
        """The number of GPUs and their health, by nvidia-smi."""
        own: Sequence[GpuHealth] = ()
        try:
            shown = _shown()
            own = shown if len(shown) == self._wanted.gpus else ()
            self.links |= {f"pcie {gpu.address}": gpu.lanes for gpu in own if gpu.lanes is not None}
            return [*judged(shown, self._wanted)]
        except SiteError as error:  # it hangs if a GPU is faulty
            said = str(error).partition(process.WAS_RUNNING)[0]
            return [NodeFinding("gpus", Judgement.BAD, said, str(self._wanted.gpus))]
        except ValueError as error:
            return [*_skipped(FROM_SMI, str(error))]
        finally:
            self._own.set_result(own)

    def nvlinks(self) -> list[NodeFinding]:
        """The NVLinks that are active, by nvidia-smi."""
        if not which("nvidia-smi"):
            return [*_skipped(["nvlink"], NO_SMI)]
        done = process.run(["nvidia-smi", "nvlink", "-s", *restriction(os.environ)], timeout_s=ANSWER_S)
        count = {gpu: nvidia_smi.active(states) for gpu, states in nvidia_smi.links(done.stdout).items()}
        if not (own := self._found()):
            return [*_skipped(["nvlink"], NOT_KNOWN)]
        if len(count) == len(own):  # both are in the driver's order
            self.links |= {f"nvlink {gpu.address}": links for gpu, links in zip(own, count.values(), strict=True)}
        return [linked(count)]

    def messages(self) -> list[NodeFinding]:
        """The driver's messages about faults of the hardware, in the kernel's log of the last day."""
        if not which("dmesg"):
            return [*_skipped(["xid"], "there is no dmesg")]
        done = process.run(["dmesg"], timeout_s=ANSWER_S)
        if done.exit_code:  # the kernel may keep it from ordinary users
            return [*_skipped(["xid"], (done.stderr.strip() or "dmesg failed").splitlines()[-1])]
        if not (own := self._found()):
            return [*_skipped(["xid"], NOT_KNOWN)]
        up_s = float(Path("/proc/uptime").read_text().split()[0])
        return [faults(done.stdout, up_s, [gpu.address for gpu in own])]

    def _found(self) -> Sequence[GpuHealth]:
        """The job's GPUs, once `health` knows them; () if it does not."""
        wait([self._own], ANSWER_S)
        return self._own.result() if self._own.done() else ()


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
    return nvidia_smi.gpus(done.stdout)


def judged(found: Sequence[GpuHealth], wanted: WantedNode) -> Iterator[NodeFinding]:
    """The findings from the answer of nvidia-smi."""
    missing = len(found) < wanted.gpus
    yield NodeFinding("gpus", _bad_if(missing), str(len(found)), str(wanted.gpus))
    if len(found) != wanted.gpus:
        yield from _skipped(FROM_SMI[1:], NOT_KNOWN)
        return
    errors = [f"{gpu.address} has {gpu.errors} uncorrected errors" for gpu in found if gpu.errors]
    repairs = [f"{gpu.address} has {name}" for gpu in found for name in gpu.repairs]
    yield NodeFinding("ecc", _bad_if(errors or repairs), ", ".join([*errors, *repairs]) or "no errors", "no errors")
    hot = [f"{gpu.address} has {', '.join(gpu.hot)}" for gpu in found if gpu.hot]
    yield NodeFinding("throttling", _bad_if(hot), ", ".join(hot) or "none", "none")
    yield _lanes(found)


def _lanes(found: Sequence[GpuHealth]) -> NodeFinding:
    """The PCIe lanes of the GPUs, which the supervisor compares with those of other nodes."""
    known = sorted({gpu.lanes for gpu in found if gpu.lanes is not None})
    result = Judgement.GOOD if known else Judgement.SKIPPED
    return NodeFinding("pcie", result, ", ".join(map(str, known)) or "unknown")


def linked(count: Mapping[str, int]) -> NodeFinding:
    """The active NVLinks, which the supervisor compares with those of other nodes."""
    if not any(count.values()):
        return NodeFinding("nvlink", Judgement.SKIPPED, "no NVLink")
    active = ", ".join(str(links) for links in sorted({*count.values()}))
    return NodeFinding("nvlink", Judgement.GOOD, f"{active} active")


def faults(text: str, up_s: float, addresses: Sequence[str]) -> NodeFinding:
    """The finding about the driver's messages on these GPUs in the kernel's log, at `up_s` seconds after its start."""
    own = {nvidia_smi.place(address) for address in addresses}
    recent = [f"Xid {xid} of {gpu}: {said}" for at_s, gpu, xid, said in XID.findall(text)
              if int(xid) in FAULTS and up_s - float(at_s) < RECENT_S and nvidia_smi.place(gpu) in own]  # fmt: skip
    return NodeFinding("xid", _bad_if(recent), recent[-1] if recent else "none", "none")


def _bad_if(wrong: object) -> Judgement:
    return Judgement.BAD if wrong else Judgement.GOOD


def _skipped(checks: Sequence[str], why: str) -> Iterator[NodeFinding]:
    yield from (NodeFinding(check, Judgement.SKIPPED, why) for check in checks)
