"""Images built and run for real: Apptainer as an ordinary user, in and beside the Slurm lab."""

import hashlib
import json
import os
import pwd
import random
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.e2e.lab_places import Slurm
from tests.e2e.places import ROOT, Said, assert_same_bits, metrics, until, wait_for_step
from tests.lab.apptainer import ApptainerLab

from .slurm import SlurmLab

TINY = "name: tiny\nbase: {{folder: {base}}}\nlabels: {{made.for: {name}}}\n"


@dataclass
class Builder:
    """The lab's user with Apptainer, and a site that keeps its images in a folder of its own."""

    place: Slurm
    apptainer: ApptainerLab

    @property
    def home(self) -> Path:
        return self.place.folder

    @property
    def images(self) -> Path:
        return self.home / "images"

    def site(self, name: str, container: str = "", **changes: str) -> str:
        lines = [
            line for line in self.place.lab.site_file.read_text().splitlines() if line.split(":")[0] not in changes
        ]
        lines += [f"{key}: {value}" for key, value in changes.items()]
        text = "\n".join(lines) + f"\ncontainer: {{cache: {self.images}, compression: lz4{container}}}\n"
        (self.home / name).write_text(text)
        return f"./{name}"

    def tiny(self, name: str) -> str:
        (self.home / f"{name}.yaml").write_text(TINY.format(base=self.apptainer.tiny, name=name))
        return f"{name}.yaml"

    def build(self, *words: str, site: str = "") -> Said:
        return self.place.torusrun("build", *words, "--site", site or self.site("images.yaml"), timeout_s=900)

    def digits(self, *words: str) -> Path:
        """Train the example to its end over four nodes; the run's folder."""
        example = (ROOT / "examples" / "digits.yaml").read_text()
        (self.home / "digits.yaml").write_text(example)
        settings = [word for pair in ("nodes=4", "grid=2x4") for word in ("--set", pair)]
        said = self.place.torusrun("submit", "digits.yaml", *settings, *words, "--wait")
        assert said.returncode == 0, (
            said.stdout + said.stderr + self.place.torusrun("logs", "last", "--all").stdout[-3000:]
        )
        return Path(self.place.view(said.stdout.split()[0])["folder"])


@pytest.fixture(scope="module")
def builder(slurm_lab: SlurmLab, apptainer_lab: ApptainerLab) -> Builder:
    return Builder(Slurm(slurm_lab), apptainer_lab)


@pytest.fixture(scope="module")
def image(builder: Builder) -> Path:
    """The shipped image file for CPUs, built by the ordinary user; its packages come from a folder of wheels."""
    image_file = str(builder.place.lab.src / "containers" / "pytorch-cpu.yaml")
    said = builder.build(image_file, "--wheelhouse", str(builder.apptainer.wheelhouse))
    assert said.returncode == 0, said.stderr[-3000:]
    return Path(said.stdout.strip())


@pytest.fixture(scope="module")
def bare(builder: Builder) -> Path:
    """The example without a container, to compare with."""
    return builder.digits("--site", builder.site("images.yaml"))


def test_a_built_image_says_what_it_is(builder: Builder, image: Path) -> None:
    known = json.loads(builder.place.torusrun("image", "inspect", "pytorch-cpu", "--site", "./images.yaml").stdout)
    assert known["labels"]["torusrun.image"] == "pytorch-cpu" and known["versions"]["torch"].startswith("2.13.0")
    assert known["versions"]["mpi"] == "openmpi 4.1.4"
    assert (
        "unchanged since it was built"
        in builder.place.torusrun("image", "verify", "pytorch-cpu", "--site", "./images.yaml").stdout
    )
    assert "pytorch-cpu" in builder.place.torusrun("image", "ls", "--site", "./images.yaml").stdout


def test_a_second_build_takes_the_cached_image(builder: Builder, image: Path) -> None:
    log = image.with_suffix(".log").stat().st_mtime_ns
    said = builder.build("pytorch-cpu", "--wheelhouse", str(builder.apptainer.wheelhouse))
    assert said.returncode == 0 and Path(said.stdout.strip()) == image
    assert image.with_suffix(".log").stat().st_mtime_ns == log, "nothing may be built again"


@pytest.mark.parametrize("launcher", ["srun", "mpirun"])
def test_digits_in_the_image_end_in_the_bits_of_a_run_without_one(
    builder: Builder, image: Path, bare: Path, launcher: str
) -> None:
    arguments = {"launcher_args": "[--mpi=pmix]"} if launcher == "srun" else {}
    site = builder.site(f"{launcher}-images.yaml", launcher=launcher, **arguments)
    run = builder.digits("--site", site, "--set", "image=pytorch-cpu")
    assert metrics(run, "eval")[-1]["accuracy"] >= 0.98
    assert_same_bits(run, bare)
    kept = json.loads((run / "image.json").read_text())
    assert kept["path"] == str(image) and len(kept["sha256"]) == 64 and kept["versions"]["torch"]
    assert "Bootstrap: debootstrap" in (run / "image.def").read_text()


def test_an_image_is_staged_once_to_every_node(builder: Builder, image: Path) -> None:
    site = builder.site("staged.yaml", ", stage: /tmp/staged")
    builder.digits("--site", site, "--set", "image=pytorch-cpu", "--set", "train.epochs=2")
    for node in builder.place.lab.nodes:
        listed = builder.place.lab.exec_on(node, ["sh", "-c", "ls -A /tmp/staged/*"]).stdout.split()
        assert sorted(name.partition(".")[2] for name in listed) == ["json", "lock", "sif"], f"{node} holds {listed}"
    harm = "for sif in /tmp/staged/*/*.sif; do echo x > $sif; done"
    builder.place.lab.exec_on(builder.place.lab.nodes[1], ["sh", "-c", harm])
    builder.digits("--site", site, "--set", "image=pytorch-cpu", "--set", "train.epochs=2")
    for node in builder.place.lab.nodes:
        summed = builder.place.lab.exec_on(node, ["sh", "-c", "sha256sum /tmp/staged/*/*.sif"], timeout_s=60).stdout
        assert summed.split()[0] == hashlib.sha256(image.read_bytes()).hexdigest(), f"{node} has a wrong copy"


def test_a_folder_that_a_stranger_made_ends_the_attempt(builder: Builder, image: Path) -> None:
    user = builder.place.lab.settings.user
    taken = f"/tmp/taken/torusrun-{pwd.getpwnam(user).pw_uid}"
    make = f"mkdir -p {taken} && chown -R nobody /tmp/taken && chown root /tmp/taken"
    for node in builder.place.lab.nodes:
        assert builder.place.lab.exec_on(node, ["sh", "-c", make]).returncode == 0
    site = builder.site("taken.yaml", ", stage: /tmp/taken")
    run = builder.place.submit("--site", site, "--set", "image=pytorch-cpu")
    builder.place.watch(run)
    view = builder.place.view(run)
    assert view["state"] == "FAILED" and f"{taken}: this folder belongs to user" in view["reason"], view
    assert "container.stage" in view["reason"]


def test_an_image_that_was_replaced_before_the_job_began_is_not_used(builder: Builder, image: Path) -> None:
    own = builder.home / "replaced.sif"
    shutil.copyfile(image, own)
    shutil.chown(own, builder.place.lab.settings.user)
    site = builder.site("later.yaml", scheduler_args="[--begin=now+10]")
    run = builder.place.submit("--site", site, "--set", "image=replaced.sif")
    with open(own, "ab") as file:
        file.write(b"\0")
    builder.place.watch(run)
    view = builder.place.view(run)
    assert view["state"] == "FAILED" and "not the image that the run was submitted with" in view["reason"], view


def test_a_resume_refuses_a_changed_image_unless_told(builder: Builder, image: Path) -> None:
    own = builder.home / "own.sif"
    shutil.copyfile(image, own)
    shutil.chown(own, builder.place.lab.settings.user)
    run = builder.place.submit("--site", builder.site("images.yaml"), "--set", "image=own.sif")
    wait_for_step(run, 40)
    assert builder.place.torusrun("cancel", run.name).returncode == 0
    assert builder.place.watch(run).returncode == 1
    assert builder.place.view(run)["state"] == "CANCELLED", "a request to stop must reach the training in its image"
    assert max((run / "checkpoints").glob("step-*")).name != "step-00000025", "and leave a checkpoint of the last step"
    with open(own, "ab") as file:
        file.write(b"\0")
    said = builder.place.torusrun("resume", run.name)
    assert said.returncode == 2 and "is not the image" in said.stderr and "--new-image" in said.stderr
    assert builder.place.torusrun("resume", run.name, "--new-image").returncode == 0
    builder.place.torusrun("cancel", run.name)
    builder.place.watch(run)


def test_check_finds_what_does_not_fit_with_a_real_image(builder: Builder, image: Path) -> None:
    (builder.home / "run.yaml").write_text(f"name: x\nsite: {builder.site('images.yaml')}\nimage: pytorch-cpu\n")
    said = builder.place.torusrun("check", "run.yaml")
    assert said.returncode == 0 and "no problem found" in said.stdout, said.stdout + said.stderr
    wrong = builder.site("wrong-images.yaml", ", bind: [/no/such/folder]")
    volta = (builder.home / wrong).read_text().replace("node:\n", "node:\n  architecture: sm_70\n")
    (builder.home / wrong).write_text(volta)
    said = builder.place.torusrun("check", "run.yaml", "--site", wrong, "--json")
    kinds = {finding["kind"] for finding in json.loads(said.stdout)["findings"]}
    assert said.returncode == 2 and {"bind-missing", "torch-without-cuda"} <= kinds
    refused = builder.place.torusrun("submit", "run.yaml", "--site", wrong)
    assert refused.returncode == 2 and "/no/such/folder is to be bound" in refused.stderr
    unreadable = builder.home / "unreadable.sif"
    unreadable.write_bytes(b"")
    unreadable.chmod(0)
    said = builder.place.torusrun("check", "run.yaml", "--set", "image=unreadable.sif")
    assert said.returncode == 2 and "Permission denied" in said.stderr


def test_two_builds_at_once_build_once(builder: Builder) -> None:
    site, image_file = builder.site("images.yaml"), builder.tiny("twins")
    words = [builder.place.lab.python, "-m", "orchestrator", "build", image_file, "--site", site]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    both = [builder.place.lab.popen_as_user(words, cwd=builder.home, **pipes) for _ in range(2)]
    said = [build.communicate(timeout=120) for build in both]
    assert [build.returncode for build in both] == [0, 0], said
    assert said[0][0] == said[1][0], "both must name the same image"
    built = [err for _, err in said if "Creating SIF" in err]
    assert len(built) == 1, f"one must build, the other take its image: {said}"


def test_a_build_killed_at_any_moment_leaves_nothing_broken(builder: Builder) -> None:
    site, image_file = builder.site("images.yaml"), builder.tiny("killed")
    words = [builder.place.lab.python, "-m", "orchestrator", "build", image_file, "--site", site, "-q"]
    for _ in range(10):
        moment_s = random.uniform(0.1, 1.5)
        build = builder.place.lab.popen_as_user(words, cwd=builder.home, start_new_session=True)
        time.sleep(moment_s)
        os.killpg(build.pid, signal.SIGKILL)
        build.wait(timeout=10)
        listed = json.loads(builder.place.torusrun("image", "ls", "--json", "--site", site).stdout)["images"]
        for entry in (e for e in listed if e["name"] == "tiny"):
            verified = builder.place.torusrun("image", "verify", entry["key"], "--site", site)
            assert verified.returncode == 0, f"killed after {moment_s:.2f} s, an image stands that is not whole"
            removed = builder.place.torusrun("image", "rm", entry["key"], "--site", site)
            assert removed.returncode == 0, f"the lock of a build killed after {moment_s:.2f} s is still held"
    said = builder.build(image_file)
    assert said.returncode == 0, said.stderr
    key = Path(said.stdout.strip()).stem
    assert not list(builder.images.glob(f".{key}*")), "the next build must clear what killed ones left"


def test_what_a_build_left_to_its_other_ids_is_removed(builder: Builder) -> None:
    """A fakeroot build owns files as ids of /etc/subuid: one that was killed leaves them, and chmod is refused."""
    make = "mkdir -p left/rootfs/etc/inner && unshare --map-root-user --map-auto chown -R 5:5 left/rootfs/etc"
    assert builder.place.run(["sh", "-c", f"{make} && ! chmod 700 left/rootfs/etc"]).returncode == 0
    remove = "import pathlib, orchestrator.containers.cache as c; print(c.remove_tree(pathlib.Path('left')))"
    said = builder.place.run(["python", "-c", remove])
    assert said.stdout == "True\n" and not (builder.home / "left").exists(), said.stderr


def test_a_build_without_any_network(builder: Builder) -> None:
    """In a network namespace with nothing in it, from a folder and a folder of wheels."""
    image_file = (
        f"name: offline\nbase: {{folder: {builder.apptainer.debian}}}\npython: {{packages: [scikit-learn==1.9.1]}}\n"
        "training: none\n"
    )
    (builder.home / "offline.yaml").write_text(image_file)
    words = ["build", "offline.yaml", "--wheelhouse", str(builder.apptainer.wheelhouse), "--offline", "-q"]
    name = builder.place.lab.settings.user
    user = ["setpriv", f"--reuid={name}", f"--regid={name}", "--clear-groups", builder.place.lab.python]
    said = subprocess.run(
        ["unshare", "--net", *user, "-m", "orchestrator", *words, "--site", builder.site("images.yaml")],
        cwd=builder.home, env={**os.environ, **builder.place.lab.user_env}, text=True, capture_output=True, timeout=600,
    )  # fmt: skip
    assert said.returncode == 0, said.stderr[-3000:]
    assert Path(said.stdout.strip()).is_file()


def test_what_the_login_shell_binds_does_not_act(builder: Builder) -> None:
    words = ["-m", "orchestrator", "build", builder.tiny("bound"), "--site", builder.site("images.yaml"), "-q"]
    binds = {f"{prefix}_{name}": "/no/such/folder" for prefix in ("APPTAINER", "SINGULARITY") for name in BINDS}
    lab = builder.place.lab
    said = lab.run_as_user([lab.python, *words], cwd=builder.home, env=binds, timeout_s=300)
    assert said.returncode == 0, said.stderr
    order = json.dumps([said.stdout.strip(), ["true"], {}, []])
    lab.run_as_user([lab.python, "-c", ENTER, order], cwd=builder.home, env=binds, check=True)


def test_a_build_in_a_job(builder: Builder) -> None:
    said = builder.build(builder.tiny("in-a-job"), "--on", "job")
    assert said.returncode == 0, said.stderr
    assert "building in job" in said.stderr and Path(said.stdout.strip()).is_file()


@pytest.mark.parametrize(
    ("image_file", "says"),
    [
        ("name: x\nbase: {folder: /no/such/folder}\n", "/no/such/folder"),
        ("name: x\nbase: {folder: BASE}\nsystem: [no-such-package-at-all]\n", "no-such-package-at-all"),
        (
            "name: x\nbase: {folder: BASE}\npython: {packages: [no-such-package-at-all==1.0]}\n",
            "no-such-package-at-all",
        ),
        ("name: x\nbase: {folder: BASE}\nsystm: [curl]\n", "did you mean 'system'?"),
        ("name: x\n", "'base' is missing"),
    ],
    ids=["base", "system package", "python package", "key", "no base"],
)
def test_an_image_file_that_cannot_be_built_gets_one_message(builder: Builder, image_file: str, says: str) -> None:
    (builder.home / "bad.yaml").write_text(image_file.replace("BASE", str(builder.apptainer.debian)))
    said = builder.build("bad.yaml", "-q", "--wheelhouse", str(builder.apptainer.wheelhouse))
    assert said.returncode in (2, 3) and says in said.stderr, said.stderr
    assert said.stderr.count("\n") <= 2 and "Traceback" not in said.stderr
    again = builder.build(builder.tiny("after-a-bad-one"))
    assert again.returncode == 0, "the next build must go on"


def test_a_full_disk_is_one_message_and_the_next_build_goes_on(builder: Builder) -> None:
    small = builder.home / "small"
    small.mkdir()
    options = f"size=300k,mode=700,uid={pwd.getpwnam(builder.place.lab.settings.user).pw_uid}"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", small], check=True, timeout=10)
    try:
        site = builder.site("small.yaml").removeprefix("./")
        text = (builder.home / site).read_text().replace(str(builder.images), str(small))
        (builder.home / site).write_text(text)
        said = builder.build(builder.tiny("full"), "-q", site=f"./{site}")
        assert said.returncode == 3 and "space" in said.stderr.lower(), said.stderr
        assert not list(small.glob("*.sif")), "a half-built image must not appear"
        subprocess.run(["mount", "-o", "remount,size=60m", small], check=True, timeout=10)
        said = builder.build("full.yaml", "-q", site=f"./{site}")
        assert said.returncode == 0, said.stderr
    finally:
        subprocess.run(["umount", "-l", small], check=True, timeout=10)


def test_a_killed_rank_in_an_image_ends_the_attempt(builder: Builder, image: Path) -> None:
    run = builder.place.submit("--site", builder.site("images.yaml"), "--set", "image=pytorch-cpu")
    wait_for_step(run, 20)
    started = json.loads((run / "attempts/1/ranks/0001.start.json").read_text())
    builder.place.kill(started["host"], started["pid"])
    view = until(lambda: (v := builder.place.view(run))["state"] == "FAILED" and v, "the state FAILED", 15)
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
from orchestrator.containers import runtime
from orchestrator.containers.command import Container, inside
image, words, given, version = json.loads(sys.argv[1])
found = runtime.required()
found = runtime.Runtime(found.command, found.product, tuple(version) or found.version)
file = os.path.join(os.getcwd(), "values.env")
started = inside(Container(found, image), words, given, os.environ, file)
with open(file, "w", newline="") as values:
    values.write(started.file_text)
assert not (set(given.values()) - {""} - set(words)) & set(started.argv)
subprocess.run(started.argv, env=started.environment, timeout=60, check=True)
"""
BINDS = ("BIND", "BINDPATH", "MOUNT")


@pytest.mark.parametrize("version", [[], [1, 0]], ids=["as it is", "as an old one"])
def test_every_value_arrives_in_a_real_container_as_it_is(builder: Builder, image: Path, version: list[int]) -> None:
    """Variables and arguments through torusrun's own command line, the runtime and its shells, into Python."""

    @settings(max_examples=20, deadline=None)
    @given(st.lists(TEXT, max_size=6), st.lists(TEXT, max_size=6))
    @example(HOSTILE, HOSTILE)
    def arrives(values: list[str], words: list[str]) -> None:
        given_ = {f"V{i}": value for i, value in enumerate(values)}
        order = json.dumps([str(image), ["python3", "-c", SHOW, " ".join(given_), *words], given_, version])
        argv = [builder.place.lab.python, "-c", ENTER, order]
        said = builder.place.lab.run_as_user(argv, cwd=builder.home, check=True)
        assert json.loads(said.stdout) == [values, words]
        assert not (builder.home / "pwned").exists()

    arrives()


def test_an_image_is_signed_with_the_users_own_key(builder: Builder) -> None:
    user, site = builder.place.lab, builder.site("images.yaml")
    built = builder.build(builder.tiny("signed"), "-q").stdout.strip()
    key = ["apptainer", "key", "newpair", "--name", "x", "--email", "x@example.org", "--comment", "", "--password", ""]
    user.run_as_user([*key, "--push=false", "--bit-length", "2048"], check=True)
    said = builder.place.torusrun("image", "sign", built, "--site", site)
    assert said.returncode == 0, said.stdout + said.stderr
    assert user.run_as_user(["apptainer", "verify", "--local", built]).returncode == 0
    assert builder.place.torusrun("image", "verify", built, "--site", site).returncode == 0
