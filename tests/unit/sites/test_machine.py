"""What this machine tells of itself: adapters and interfaces from /sys, modules, file systems."""

from pathlib import Path

import pytest

from tests.unit.sites.recorded_clusters import RECORDED
from torusrun.orchestrator.sites.machine import (
    Adapter,
    adapters,
    interfaces,
    modules,
    preferred,
)


def port(folder: Path, adapter: str, state: str, layer: str, rate: str) -> None:
    """A port as the kernel shows it (Documentation/ABI/stable/sysfs-class-infiniband)."""
    place = folder / adapter / "ports" / "1"
    place.mkdir(parents=True)
    for name, text in (("state", state), ("link_layer", layer), ("rate", rate)):
        (place / name).write_text(f"{text}\n")


def test_adapters_that_are_active_over_infiniband(tmp_path: Path) -> None:
    port(tmp_path, "mlx5_1", "4: ACTIVE", "InfiniBand", "100 Gb/sec (4X EDR)")
    port(tmp_path, "mlx5_0", "4: ACTIVE", "InfiniBand", "100 Gb/sec (4X EDR)")
    port(tmp_path, "mlx5_2", "1: DOWN", "InfiniBand", "10 Gb/sec (4X SDR)")
    port(tmp_path, "mlx5_bond", "4: ACTIVE", "Ethernet", "25 Gb/sec (1X EDR)")
    assert adapters(tmp_path) == (Adapter("mlx5_0", 12.5e9), Adapter("mlx5_1", 12.5e9))
    assert adapters(tmp_path / "none") == ()


def test_interfaces_over_infiniband_that_are_up(tmp_path: Path) -> None:
    for name, kind, state in (
        ("eth0", "1", "up"),
        ("ib1", "32", "down"),
        ("ib0", "32", "up"),
        ("lo", "772", "unknown"),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "type").write_text(f"{kind}\n")
        (tmp_path / name / "operstate").write_text(f"{state}\n")
    assert interfaces(tmp_path) == ("ib0",)


def test_modules_as_they_are_listed_with_defaults_last() -> None:
    listed = modules((RECORDED / "modules" / "avail.txt").read_text())
    assert listed == ("apptainer/1.4.5", "openmpi/4.1.6", "singularity", "openmpi/4.0.5")
    assert preferred(listed, ("openmpi", "mpich")) == "openmpi/4.0.5"
    assert preferred(listed, ("singularitypro", "singularity")) == "singularity"
    assert preferred(listed, ("mpich",)) is None


@pytest.mark.parametrize("text", ["", "bash: module: command not found\n", "/opt/modulefiles:\n"])
def test_what_is_no_list_of_modules(text: str) -> None:
    assert modules(text) == ()
