"""The command line in an image: every value arrives as it is, whatever the runtime, and nothing else does."""

import subprocess
from pathlib import Path

import pytest

from orchestrator.containers.command import Bind, Container, inside, passes
from orchestrator.containers.mounts import needed
from orchestrator.containers.runtime import Runtime


def test_the_words_and_the_environment() -> None:
    container = Container(
        Runtime("/usr/bin/apptainer", "apptainer", (1, 4, 5)), "/c/x.sif",
        binds=(Bind("/data"), Bind("/my mpi", "/opt/host-mpi", read_only=True)), gpus=True, directory="/work",
    )  # fmt: skip
    inherited = {
        "PATH": "/usr/bin", "SLURM_PROCID": "3", "LD_PRELOAD": "/host.so", "APPTAINERENV_SPY": "1",
        "OPAL_PREFIX": "/host", "PMIX_RANK": "3", "RANK": "9",
    }  # fmt: skip
    launch = inside(
        container, ["python", "-m", "training", "c"], {"NCCL_IB_HCA": "mlx5_0,mlx5_1", "RANK": "3"}, inherited
    )
    assert launch.argv == (
        "/usr/bin/apptainer", "exec", "--cleanenv", "--no-eval", "--nv", "--bind", "/data:/data",
        "--bind", "/my mpi:/opt/host-mpi:ro", "--pwd", "/work", "/c/x.sif", "python", "-m", "training", "c",
    )  # fmt: skip
    handed_in = {k[13:]: v for k, v in launch.environment.items() if k.startswith("APPTAINERENV_")}
    assert handed_in == {"NCCL_IB_HCA": "mlx5_0,mlx5_1", "RANK": "3", "SLURM_PROCID": "3", "PMIX_RANK": "3"}
    assert launch.environment["PATH"] == "/usr/bin"


def test_an_old_runtime_gets_its_own_prefix_and_hard_values_as_words() -> None:
    container = Container(Runtime("singularity", "singularity", (2, 6, 1)), "x.sif")
    launch = inside(container, ["python"], {"RANK": "3", "NOTE": "$(id)", "EMPTY": ""}, {})
    assert launch.argv == ("singularity", "exec", "--cleanenv", "x.sif", "env", "NOTE=$(id)", "EMPTY=", "python")
    assert launch.environment == {"SINGULARITYENV_RANK": "3"}


@pytest.mark.parametrize("name", ["RANK", "NCCL_DEBUG", "UCX_NET_DEVICES", "GLOO_SOCKET_IFNAME", "PMIX_NAMESPACE",
                                  "OMPI_COMM_WORLD_RANK", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS"])  # fmt: skip
def test_what_ranks_need_goes_in(name: str) -> None:
    assert passes(name)


@pytest.mark.parametrize("name", ["LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONPATH", "HOME", "AWS_SECRET", "OPAL_PREFIX"])
def test_the_rest_of_the_host_stays_out(name: str) -> None:
    assert not passes(name)


def test_binds_as_a_site_writes_them() -> None:
    texts = ["/data", "/a:/b", "/a b:/c:ro"]
    assert [Bind.parse(t) for t in texts] == [Bind("/data"), Bind("/a", "/b"), Bind("/a b", "/c", read_only=True)]
    for text in ("data", "/a:b", "/a:/b:rx", "/a,/b", ""):
        with pytest.raises(ValueError, match="is no bind"):
            Bind.parse(text)


def test_what_an_image_needs_bound() -> None:
    training, mpi = needed(True, "/apps/openmpi/4.1")
    assert Path(training.host, "__main__.py").is_file() and training.inside == "/opt/torusrun/training"
    assert str(mpi) == "/apps/openmpi/4.1:/opt/host-mpi:ro" and needed(False) == ()


def test_what_cannot_be_said_is_refused() -> None:
    runtime = Runtime("apptainer", "apptainer", (1, 4))
    with pytest.raises(ValueError, match="not a variable's name"):
        inside(Container(runtime, "x"), ["a"], {"A=B": "c"}, {})
    for host in ("/a:b", "/a,b"):
        with pytest.raises(ValueError, match="must be without"):
            inside(Container(runtime, "x", binds=(Bind(host),)), ["a"], {}, {})


def test_a_rank_pays_little_for_it() -> None:
    """The command is made beside every rank, so its module may load nothing that takes long."""
    program = "import sys, orchestrator.containers.command; print(*sys.modules)"
    said = subprocess.run(["python3", "-c", program], capture_output=True, text=True, cwd=Path(__file__).parents[3])
    assert not {"yaml", "jinja2", "spython", "submitit"} & set(said.stdout.split()) and said.stdout
