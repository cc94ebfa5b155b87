"""The command line in an image: every value arrives as it is, whatever the runtime, and nothing else does."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from torusrun.orchestrator.images.command import Bind, ContainerExec, inside, needed, passes, variables
from torusrun.orchestrator.images.runtime import Runtime, find

OLD = ContainerExec(Runtime("singularity", "singularity", (2, 6, 1)), "x.sif")
BINDS = ("BIND", "BINDPATH", "MOUNT")


def test_the_words_and_the_environment() -> None:
    container = ContainerExec(
        Runtime("/usr/bin/apptainer", "apptainer", (1, 4, 5)), "/c/x.sif",
        binds=(Bind("/data"), Bind("/my mpi", "/opt/host-mpi", read_only=True)), gpu="nv", directory="/work",
    )  # fmt: skip
    inherited = {
        "PATH": "/usr/bin", "SLURM_PROCID": "3", "LD_PRELOAD": "/host.so", "APPTAINERENV_SPY": "1",
        "OPAL_PREFIX": "/host", "PMIX_RANK": "3", "RANK": "9",
        **{f"{prefix}_{name}": "/spy" for prefix in ("APPTAINER", "SINGULARITY") for name in BINDS},
        "SINGULARITYENV_SPY": "1", "APPTAINER_CACHEDIR": "/kept",
    }  # fmt: skip
    launch = inside(
        container, ["python", "-m", "torusrun.training", "c"], {"NCCL_IB_HCA": "mlx5_0,mlx5_1", "RANK": "3"}, inherited
    )
    assert launch.argv == (
        "/usr/bin/apptainer", "--quiet", "exec", "--cleanenv", "--no-eval", "--nv", "--bind", "/data:/data",
        "--bind", "/my mpi:/opt/host-mpi:ro", "--pwd", "/work", "/c/x.sif", "python", "-m", "torusrun.training", "c",
    )  # fmt: skip
    handed_in = {k[13:]: v for k, v in launch.environment.items() if k.startswith("APPTAINERENV_")}
    assert handed_in == {"NCCL_IB_HCA": "mlx5_0,mlx5_1", "RANK": "3", "SLURM_PROCID": "3", "PMIX_RANK": "3"}
    assert launch.environment["PATH"] == "/usr/bin" and launch.environment["APPTAINER_CACHEDIR"] == "/kept"
    assert not any("SPY" in name or value == "/spy" for name, value in launch.environment.items())
    assert launch.file_text == ""


def test_a_containers_own_variables_reach_every_program_unless_it_is_given_others() -> None:
    container = ContainerExec(Runtime("apptainer", "apptainer", (1, 4, 5)), "x.sif", environment={"PYTHONPATH": "/own"})
    assert inside(container, ["a"], {}, {}).environment == {"APPTAINERENV_PYTHONPATH": "/own"}
    assert inside(container, ["a"], {"PYTHONPATH": "/b"}, {}).environment == {"APPTAINERENV_PYTHONPATH": "/b"}


def test_an_old_runtime_gets_its_own_prefix_and_hard_values_by_a_file() -> None:
    launch = inside(OLD, ["python"], {"RANK": "3", "NOTE": "$(id)", "EMPTY": ""}, {}, "/runs/0003.env")
    assert launch.argv == (
        "singularity", "--quiet", "exec", "--cleanenv", "x.sif",
        "/bin/sh", "-c", '. "$0" && exec "$@"', "/runs/0003.env", "python",
    )  # fmt: skip
    assert launch.environment == {"SINGULARITYENV_RANK": "3"}
    assert launch.file_text == "export NOTE='$(id)'\nexport EMPTY=''\n"


HOSTILE = [
    "$(touch pwned)", "`touch pwned`", "a'b\"c", "''", "'\n'", "a\nb\r\n", "\r", "\\", "\\\n", "${HOME}",
    "; touch pwned #", "", " a ", "\t", "\x01\x7f\x81", "é\u2028", "*", "~", "-n", "!!",
]  # fmt: skip
SHOW = "import json, os, sys; print(json.dumps([[os.environ.get(n) for n in sys.argv[1].split()], sys.argv[2:]]))"
TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20) | st.sampled_from(
    HOSTILE
)


@pytest.mark.parametrize("shell", ["dash", "bash"])
def test_every_value_comes_out_of_the_file_as_it_went_in(shell: str, tmp_path: Path) -> None:
    """By the shells that images have as /bin/sh, whichever file name it is."""
    file = tmp_path / "it's $(touch pwned) 0003.env"

    @settings(max_examples=40, deadline=None)
    @given(st.lists(TEXT, min_size=1, max_size=6), st.lists(TEXT, max_size=4))
    @example(HOSTILE, HOSTILE)
    def comes_out(values: list[str], words: list[str]) -> None:
        variables = {f"V{i}": value for i, value in enumerate(values)} | {"HOME": "/a b"}
        launch = inside(OLD, [sys.executable, "-IS", "-c", SHOW, " ".join(variables), *words], variables, {}, str(file))
        file.write_text(launch.file_text, newline="")
        handed = {name.removeprefix("SINGULARITYENV_"): value for name, value in launch.environment.items()}
        command = [f"/usr/bin/{shell}", *(["--posix"] if shell == "bash" else []), *launch.argv[6:]]
        said = subprocess.run(command, env=handed, cwd=tmp_path, capture_output=True, timeout=300, check=True)
        assert json.loads(said.stdout) == [list(variables.values()), words]
        assert not list(tmp_path.glob("pwned"))

    comes_out()


@pytest.mark.parametrize("value", ["", "\r", "\x80", "\x7f", "\t", "é", "\udcff"])
def test_what_a_new_runtime_changes_goes_by_the_file(value: str) -> None:
    new = ContainerExec(Runtime("apptainer", "apptainer", (1, 4, 5)), "x.sif")
    launch = inside(new, ["a"], {"V": value, "W": "$(id)\n'"}, {}, "/runs/0003.env")
    assert launch.environment == {"APPTAINERENV_W": "$(id)\n'"} and launch.file_text.startswith("export V=")


def test_values_that_are_not_text_come_out_too(tmp_path: Path) -> None:
    value = b"\xff'\x80".decode("utf-8", "surrogateescape")
    launch = inside(OLD, ["printenv", "V"], {"V": value}, {}, str(tmp_path / "e"))
    (tmp_path / "e").write_bytes(launch.file_text.encode("utf-8", "surrogateescape"))
    said = subprocess.run(launch.argv[5:], capture_output=True, timeout=300, check=True)
    assert said.stdout == b"\xff'\x80\n"


def test_a_missing_file_starts_nothing(tmp_path: Path) -> None:
    launch = inside(OLD, ["touch", str(tmp_path / "started")], {"V": ""}, {}, str(tmp_path / "none"))
    assert subprocess.run(launch.argv[5:], capture_output=True, timeout=300).returncode != 0
    assert not (tmp_path / "started").exists()


def test_a_runtime_is_not_taken_from_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "apptainer").write_text("#!/bin/sh\ntouch pwned\necho apptainer version 1.4.5\n")
    (tmp_path / "apptainer").chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", ".::sub:/no/such/folder")
    assert find() is None and not (tmp_path / "pwned").exists()


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
        with pytest.raises(ValueError, match="is not a bind"):
            Bind.parse(text)


def test_what_an_image_needs_bound() -> None:
    training, mpi = needed(True, "/apps/openmpi/4.1")
    assert Path(training.host, "__main__.py").is_file() and training.inside == "/opt/torusrun/training"
    assert str(mpi) == "/apps/openmpi/4.1:/opt/host-mpi:ro" and needed(False) == ()
    assert variables(True) == {"PYTHONPATH": f"{training.inside}/entry"} and variables(False) == {}


def test_values_that_cannot_be_expressed_are_refused() -> None:
    runtime = Runtime("apptainer", "apptainer", (1, 4))
    with pytest.raises(ValueError, match="not a variable's name"):
        inside(ContainerExec(runtime, "x"), ["a"], {"A=B": "c"}, {})
    with pytest.raises(ValueError, match="NOTE have to be written into a file"):
        inside(OLD, ["a"], {"NOTE": "$(id)"}, {})
    with pytest.raises(ValueError, match="'UID' is a variable of the shell itself"):
        inside(OLD, ["a"], {"UID": "$(id)"}, {}, "/f")
    for host in ("/a:b", "/a,b"):
        with pytest.raises(ValueError, match="must be without"):
            inside(ContainerExec(runtime, "x", binds=(Bind(host),)), ["a"], {}, {})


def test_a_rank_pays_little_for_it() -> None:
    """The command is made beside every rank, so its module may load nothing that takes long."""
    program = "import sys, torusrun.orchestrator.images.command; print(*sys.modules)"
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert not {"yaml", "jinja2", "spython", "submitit"} & set(said.stdout.split()) and said.stdout
