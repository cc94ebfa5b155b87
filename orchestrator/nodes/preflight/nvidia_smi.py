"""Reads what nvidia-smi says about the GPUs of a node: `nvidia-smi -q -x` and `nvidia-smi nvlink -s`.

The elements differ between drivers. These are read from version 10 to 13 of its document (nvsmi_device_v13.dtd).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from xml.etree import ElementTree

# Reasons for lower clocks that mean heat or a lack of power; others, such as an idle GPU, are usual.
HOT = ("hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "sw_thermal_slowdown")
REPAIRS = (
    "retired_pages/pending_retirement", "remapped_rows/remapped_row_pending", "remapped_rows/remapped_row_failure",
    "ecc_errors/channel_repair_pending", "ecc_errors/tpc_repair_pending", "gpu_reset_status/reset_required",
)  # fmt: skip
UNCORRECTED = re.compile(r".*_uncorrectable.*|double_bit")  # double_bit/total before driver 418
PLACE = re.compile(r"([0-9a-f]+):([0-9a-f]{2}):([0-9a-f]{2})", re.IGNORECASE)
LINK = re.compile(r"^\s+Link \d+: (\S.*)$")


@dataclass(frozen=True)
class GpuHealth:
    """What the driver says about one GPU. `errors` are uncorrected ECC errors since the driver was loaded."""

    address: str
    errors: int = 0
    repairs: tuple[str, ...] = ()
    hot: tuple[str, ...] = ()
    lanes: int | None = None


def gpus(text: str) -> tuple[GpuHealth, ...]:
    """The GPUs in the output of `nvidia-smi -q -x`. Raises ValueError if it is something else."""
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise ValueError(f"this is not the output of nvidia-smi -q -x: {error}") from None
    return tuple(_gpu(element) for element in root.iter("gpu"))


def place(address: str) -> tuple[int, ...]:
    """The domain, bus and device of '00000000:C1:00.0', or of 'PCI:0000:c1:00' as the kernel's log has it."""
    found = PLACE.search(address)
    return tuple(int(number, 16) for number in found.groups()) if found else ()


def _gpu(gpu: ElementTree.Element) -> GpuHealth:
    reasons = [*gpu.iterfind("clocks_event_reasons/*"), *gpu.iterfind("clocks_throttle_reasons/*")]
    active = [
        re.sub("^clocks_(event|throttle)_reason_", "", reason.tag) for reason in reasons if _text(reason) == "Active"
    ]
    return GpuHealth(
        gpu.get("id", ""),
        errors=sum(
            _count(found) for found in gpu.iterfind("ecc_errors/volatile/*") if UNCORRECTED.fullmatch(found.tag)
        ),
        repairs=tuple(path.rpartition("/")[2] for path in REPAIRS if _text(gpu.find(path)) == "Yes"),
        hot=tuple(reason for reason in active if reason in HOT),
        lanes=_lanes(_text(gpu.find("pci/pci_gpu_link_info/link_widths/current_link_width"))),
    )


def _text(element: ElementTree.Element | None) -> str:
    return (element.text or "").strip() if element is not None else ""


def _count(element: ElementTree.Element) -> int:
    text = _text(element) or _text(element.find("total"))
    return int(text) if text.isdecimal() else 0


def _lanes(text: str) -> int | None:
    """16 for '16x'; None for 'N/A'."""
    found = re.fullmatch(r"(\d+)x", text)
    return int(found[1]) if found else None


def links(text: str) -> Mapping[str, Sequence[str]]:
    """GPU -> its links, each as '25.781 GB/s' or '<inactive>', from the output of `nvidia-smi nvlink -s`."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        if line.startswith("GPU "):
            found[line.partition(":")[0]] = []
        elif found and (link := LINK.match(line)):
            found[[*found][-1]].append(link[1].strip())
    return found


def active(states: Sequence[str]) -> int:
    """How many of a GPU's links are active."""
    return sum(state.endswith("GB/s") for state in states)
