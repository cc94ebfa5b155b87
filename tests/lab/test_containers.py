"""Programs in real images: Apptainer as an ordinary user, in and beside the Slurm lab."""

import hashlib
import json
import pwd
import shutil
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.e2e.places import LONG, assert_same_bits, metrics, until, wait_for_step

from .image_builder import SHIPPED, Builder


def test_a_built_image_says_what_it_is(builder: Builder, image: Path) -> None:
    site = ("--site", builder.site("images.yaml"))
    known = json.loads(builder.place.torusrun("image", "inspect", "pytorch-cpu", *site).stdout)
    assert known["labels"]["torusrun.image"] == "pytorch-cpu" and known["versions"]["torch"].startswith("2.13.0")
    assert known["versions"]["mpi"] == "openmpi 4.1.4"
    verified = builder.place.torusrun("image", "verify", "pytorch-cpu", *site)
    assert "unchanged since it was built" in verified.stdout
    assert "pytorch-cpu" in builder.place.torusrun("image", "ls", *site).stdout


def test_a_second_build_takes_the_cached_image(builder: Builder, image: Path) -> None:
    log = image.with_suffix(".log").stat().st_mtime_ns
    said = builder.build(SHIPPED, "--wheelhouse", str(builder.apptainer.wheelhouse))
    assert said.returncode == 0 and Path(said.stdout.strip()) == image
    assert image.with_suffix(".log").stat().st_mtime_ns == log, "nothing may be built again"


@pytest.mark.parametrize("launcher", ["srun", "mpirun"])
def test_digits_in_the_image_end_in_the_bits_of_a_run_without_one(
    builder: Builder, image: Path, bare: Path, launcher: str
) -> None:
    arguments = {"launcher_args": "[--mpi=pmix]"} if launcher == "srun" else {}
    site = builder.site(f"{launcher}-images.yaml", launcher=launcher, **arguments)
    run = builder.digits("--site", site, "--set", f"image={SHIPPED}")
    assert_same_bits(run, bare)
    kept = json.loads((run / "image.json").read_text())
    assert kept["path"] == str(image) and len(kept["sha256"]) == 64 and kept["versions"]["torch"]
    assert "Bootstrap: localimage" in (run / "image.def").read_text()


def test_an_image_is_staged_once_to_every_node(builder: Builder) -> None:
    site, image_file = builder.site("staged.yaml", stage="/tmp/staged"), builder.tiny("staged-image")
    image = Path(builder.build(image_file, "-q").stdout.strip())
    text = f"name: staged\nsite: {site}\nimage: {image_file}\nnodes: 4\ncode: none\ncommand: [hostname]\n"
    builder.place.put("staged-run.yaml", text)
    assert builder.place.torusrun("submit", "staged-run.yaml", "--wait").returncode == 0
    for node in builder.place.lab.nodes:
        listed = builder.place.lab.exec_on(node, ["sh", "-c", "ls -A /tmp/staged/*"]).stdout.split()
        kept = hashlib.sha256(image.read_bytes()).hexdigest()[:16]
        assert {kept, f"{kept}.json", "lock"} < {*listed} and len(listed) == 4, f"{node} holds {listed}"
    harm = f"echo x > /tmp/staged/*/{kept}"
    builder.place.lab.exec_on(builder.place.lab.nodes[1], ["sh", "-c", harm])
    assert builder.place.torusrun("submit", "staged-run.yaml", "--wait").returncode == 0
    for node in builder.place.lab.nodes:
        summed = builder.place.lab.exec_on(node, ["sh", "-c", f"sha256sum /tmp/staged/*/{kept}"], timeout_s=60).stdout
        assert summed.split()[0] == hashlib.sha256(image.read_bytes()).hexdigest(), f"{node} has a wrong copy"


def test_a_folder_that_a_stranger_made_ends_the_attempt(builder: Builder, image: Path) -> None:
    user = builder.place.lab.settings.user
    taken = f"/tmp/taken/torusrun-{pwd.getpwnam(user).pw_uid}"
    make = f"mkdir -p {taken} && chown -R nobody /tmp/taken && chown root /tmp/taken"
    for node in builder.place.lab.nodes:
        assert builder.place.lab.exec_on(node, ["sh", "-c", make]).returncode == 0
    site = builder.site("taken.yaml", stage="/tmp/taken")
    run = builder.place.submit("--site", site, "--set", f"image={SHIPPED}")
    builder.place.watch(run)
    view = builder.place.view(run)
    assert view["state"] == "FAILED" and f"{taken}: this folder belongs to user" in view["reason"], view
    assert "'stage' of the site" in view["reason"]


def test_a_resume_refuses_a_changed_image_without_new_image(builder: Builder, image: Path) -> None:
    own = builder.home / "own.sif"
    shutil.copyfile(image, own)
    shutil.chown(own, builder.place.lab.settings.user)
    run = builder.place.submit("--site", builder.site("images.yaml"), "--set", "image=own.sif", *LONG)
    wait_for_step(run, 40)
    assert builder.place.torusrun("cancel", run.name).returncode == 0
    assert builder.place.watch(run).returncode == 1
    assert builder.place.view(run)["state"] == "CANCELLED", "a request to stop must reach the training in its image"
    newest, (stop,) = max((run / "checkpoints").glob("step-*")), metrics(run, "stop")
    assert newest.name == f"step-{stop['step']:08d}", "and leave a checkpoint of the last step"
    with open(own, "ab") as file:
        file.write(b"\0")
    said = builder.place.torusrun("resume", run.name)
    assert said.returncode == 2 and "is not the image" in said.stderr and "--new-image" in said.stderr
    assert builder.place.torusrun("resume", run.name, "--new-image").returncode == 0
    builder.place.torusrun("cancel", run.name)
    builder.place.watch(run)


def test_check_finds_what_does_not_fit_with_a_real_image(builder: Builder, image: Path) -> None:
    (builder.home / "run.yaml").write_text(
        f"name: x\nsite: {builder.site('images.yaml')}\nimage: {SHIPPED}\ntrain: {{}}\n"
    )
    said = builder.place.torusrun("plan", "run.yaml", "--check", "--json")
    outcomes = {finding["kind"]: finding["outcome"] for finding in json.loads(said.stdout)["check"]["findings"]}
    assert said.returncode == 0 and set(outcomes.values()) == {"fits"}, said.stdout + said.stderr
    assert {"image-broken", "python-old", "torch-old", "training-missing", "image-architecture"} <= set(outcomes)
    wrong = builder.site("wrong-images.yaml", ", bind: [/no/such/folder]")
    volta = (builder.home / wrong).read_text().replace("node:\n", "node:\n  architecture: sm_70\n  gpus: 2\n")
    (builder.home / wrong).write_text(volta)
    said = builder.place.torusrun("plan", "run.yaml", "--check", "--site", wrong, "--json")
    kinds = {f["kind"] for f in json.loads(said.stdout)["check"]["findings"] if f["severity"] == "error"}
    assert said.returncode == 2 and {"bind-missing", "torch-without-cuda"} <= kinds
    refused = builder.place.torusrun("submit", "run.yaml", "--site", wrong)
    assert refused.returncode == 2 and "/no/such/folder is to be bound" in refused.stderr
    unreadable = builder.home / "unreadable.sif"
    unreadable.write_bytes(b"")
    unreadable.chmod(0)
    said = builder.place.torusrun("plan", "run.yaml", "--check", "--set", "image=unreadable.sif")
    assert said.returncode == 2 and "Permission denied" in said.stdout, said.stdout + said.stderr


def test_a_killed_rank_in_an_image_ends_the_attempt(builder: Builder, image: Path) -> None:
    run = builder.place.submit("--site", builder.site("images.yaml"), "--set", f"image={SHIPPED}", *LONG)
    wait_for_step(run, 20)
    started = json.loads((run / "attempts/1/ranks/0001.start.json").read_text())
    builder.place.kill(started["host"], started["pid"])
    view = until(lambda: (v := builder.place.view(run))["state"] == "FAILED" and v, "the state FAILED")
    assert view["reason"].startswith("rank 1 ") and "SIGKILL" in view["reason"], view


HOSTILE = [
    "$(touch pwned)",
    "`touch pwned`",
    "a'b\"c",
    "a,b",
    "; touch pwned #",
    "a\nb\r\n",
    "\\",
    "${HOME}",
    "%post",
    "",
]
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)
SHOW = "import json, os, sys; print(json.dumps([[os.environ.get(n) for n in sys.argv[1].split()], sys.argv[2:]]))"
ENTER = """
import json, os, subprocess, sys
from torusrun.orchestrator.images import runtime
from torusrun.orchestrator.images.command import ContainerExec, inside
image, words, given, version = json.loads(sys.argv[1])
found = runtime.required()
found = runtime.Runtime(found.command, found.product, tuple(version) or found.version)
file = os.path.join(os.getcwd(), "values.env")
started = inside(ContainerExec(found, image), words, given, os.environ, file)
with open(file, "w", newline="") as values:
    values.write(started.file_text)
assert not (set(given.values()) - {""} - set(words)) & set(started.argv)
subprocess.run(started.argv, env=started.environment, timeout=60, check=True)
"""
BINDS = ("BIND", "BINDPATH", "MOUNT")


def test_what_the_login_shell_binds_does_not_act(builder: Builder) -> None:
    words = ["-m", "torusrun", "image", "build", builder.tiny("bound"), "--site", builder.site("images.yaml"), "-q"]
    binds = {f"{prefix}_{name}": "/no/such/folder" for prefix in ("APPTAINER", "SINGULARITY") for name in BINDS}
    lab = builder.place.lab
    said = lab.run_as_user([lab.python, *words], cwd=builder.home, env=binds, timeout_s=300)
    assert said.returncode == 0, said.stderr
    order = json.dumps([said.stdout.strip(), ["true"], {}, []])
    lab.run_as_user([lab.python, "-c", ENTER, order], cwd=builder.home, env=binds, check=True)


@pytest.mark.parametrize("version", [[], [1, 0]], ids=["as it is", "as an old one"])
def test_every_value_arrives_in_a_real_container_unchanged(builder: Builder, image: Path, version: list[int]) -> None:
    """Variables and arguments pass torusrun's own command line, the runtime and its shells, into Python."""

    @settings(max_examples=5, deadline=None)
    @given(st.lists(TEXT, max_size=30), st.lists(TEXT, max_size=30))
    @example(HOSTILE, HOSTILE)
    def arrives(values: list[str], words: list[str]) -> None:
        given_ = {f"V{i}": value for i, value in enumerate(values)}
        order = json.dumps([str(image), ["python3", "-c", SHOW, " ".join(given_), *words], given_, version])
        argv = [builder.place.lab.python, "-c", ENTER, order]
        said = builder.place.lab.run_as_user(argv, cwd=builder.home, check=True)
        assert json.loads(said.stdout) == [values, words]
        assert not (builder.home / "pwned").exists()

    arrives()
