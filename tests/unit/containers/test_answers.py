"""What programs print, read as facts: Open MPI, Slurm and ldd recorded, the others written after their form."""

from pathlib import Path

import pytest

from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.images.checks.answers import (
    Library,
    MpiLibrary,
    family_of,
    parse_compat,
    parse_glibc,
    parse_gpus,
    parse_ldd,
    parse_mpi,
    parse_probe,
    parse_slurm_pmi,
)
from torusrun.orchestrator.images.runtime import Runtime, parse_version


@pytest.mark.parametrize(
    ("said", "product", "version"),
    [
        ("apptainer version 1.4.5\n", "apptainer", (1, 4, 5)),
        ("apptainer version 1.1.3-1.el8\n", "apptainer", (1, 1, 3)),
        ("singularity version 3.8.7\n", "singularity", (3, 8, 7)),
        ("singularity-ce version 4.1.5-focal\n", "singularity-ce", (4, 1, 5)),
        ("SingularityPRO version 4.1-7.el9\n", "singularity-pro", (4, 1)),
        ("singularity-pro version 3.9-4.el7\n", "singularity-pro", (3, 9)),
        ("2.6.1-dist\n", "singularity", (2, 6, 1)),
        ("Lmod 8.7.2 is ready\napptainer version 1.4.5\n", "apptainer", (1, 4, 5)),
        ("loading 1.2\nv3.0.1\n", "singularity", (3, 0, 1)),
    ],
)
def test_versions_of_runtimes(said: str, product: str, version: tuple[int, ...]) -> None:
    assert parse_version("x", said) == Runtime("x", product, version)


def test_an_output_without_a_version_is_reported() -> None:
    with pytest.raises(SiteError, match="which is not a version"):
        parse_version("singularity", "module: command not found")


def test_what_a_version_can_do() -> None:
    old, new = Runtime("s", "singularity", (2, 6, 1)), Runtime("a", "apptainer", (1, 4, 5))
    pro = Runtime("s", "singularity-pro", (3, 9))
    assert (old.prefix, new.prefix) == ("SINGULARITY", "APPTAINER")
    assert [r.has("--no-eval") for r in (old, pro, new)] == [False, False, True]
    assert [r.has("--fakeroot") for r in (old, pro, new)] == [False, True, True]


@pytest.mark.parametrize(
    ("said", "mpi"),
    [
        ("mpirun (Open MPI) 5.0.3\n\nReport bugs to https://www.open-mpi.org/\n", MpiLibrary("openmpi", "5.0.3")),
        ("Intel(R) MPI Library for Linux* OS, Version 2021.13 Build 20240515\n", MpiLibrary("intel", "2021.13")),
        ("HYDRA build details:\n    Version:                                 4.1.2\n", MpiLibrary("mpich", "4.1.2")),
        ("bash: mpirun: command not found", None),
    ],
)
def test_mpis(said: str, mpi: MpiLibrary | None) -> None:
    assert parse_mpi(said) == mpi


RECORDED = Path(__file__).parents[1] / "recorded" / "containers"


def test_what_srun_offers() -> None:
    with_pmix, without = ((RECORDED / f"{name}.txt").read_text() for name in ("srun-pmix", "srun-without-pmix"))
    assert parse_slurm_pmi(with_pmix) == {"none", "cray_shasta", "pmi2", "pmix", "pmix_v4"}
    assert parse_slurm_pmi(without) == {"none", "cray_shasta", "pmi2"}
    assert parse_slurm_pmi("srun: MPI types are...\nsrun: none\nsrun: pmix\n") == {"none", "pmix"}
    assert parse_slurm_pmi("srun: fatal: Could not establish a configuration source") is None
    assert parse_slurm_pmi("") is None


def test_libraries() -> None:
    said = (RECORDED / "bullseye.txt").read_text().partition("TORUSRUN-ASKED bound ")[2].partition("\n")[2]
    path, _, ldd = said.partition("\n")
    found = parse_ldd(path, ldd, 0)
    assert found.missing == ("libopen-rte.so.40", "libopen-pal.so.40") and found.glibc == ("2.34", "2.33")
    assert parse_ldd("/x", "\tnot a dynamic executable\n", 1) == Library("/x")
    assert parse_ldd("/x", "torusrun: line 2: ldd: not found\n", 127).error == "torusrun: line 2: ldd: not found"
    names = ("libmpi.so.40.30.4", "libmpi.so.12", "libmpich.so.12", "libmpi.so.20", "libc.so.6", "libmpi.so")
    assert [family_of(name) for name in names] == ["openmpi", "mpich", "mpich", "openmpi", None, None]


def test_gpus() -> None:
    assert parse_gpus("470.57.02, 7.0\n470.57.02, 7.0\n") == ("470.57.02", ("sm_70",))
    assert parse_gpus("580.95.05, 10.0\n580.95.05, 9.0") == ("580.95.05", ("sm_100", "sm_90"))
    assert parse_gpus("NVIDIA-SMI has failed because it couldn't communicate with the driver") == (None, ())


def test_cuda_compat() -> None:
    """File names as the packages cuda-compat-12-6 and older ones of NVIDIA have them (from memory)."""
    folder = "/usr/local/cuda-12.6/compat"
    said = f"{folder}/libcuda.so.1\n{folder}/libcuda.so.560.35.03\n/usr/local/cuda/compat/lib.real/libcuda.so.95.1\n"
    assert parse_compat(said) == "560.35.03" and parse_compat(f"{folder}/libcuda.so.1\n") == ""


def test_glibc() -> None:
    assert parse_glibc("ldd (Debian GLIBC 2.36-9+deb12u14) 2.36\nCopyright (C) 2022") == "2.36"
    assert parse_glibc("module: python/3.11 loaded\nldd (GNU libc) 2.17\nCopyright (C) 2012\n") == "2.17"
    assert parse_glibc("musl libc (x86_64)\nVersion 1.2.3") is parse_glibc("") is None


def test_the_probe_is_found_among_other_output() -> None:
    assert parse_probe("WARNING: no GPU\nTORUSRUN-PROBE {'python': '3.11.2'}\n") == {"python": "3.11.2"}
    assert parse_probe("TORUSRUN-PROBE {'python': 3, 'training': 'yes', 'torch': None}") == {"torch": None}
    assert parse_probe("TORUSRUN-PROBE {__import__('os')}") == parse_probe("TORUSRUN-PROBE {1}") == {}
    assert parse_probe("Traceback (most recent call last):") == {}
