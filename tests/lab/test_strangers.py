"""A second ordinary user of the lab, with the rights of any user, tries to harm the first one.

The stranger's code would write into a file that only the victim can write; a file he reads would show the secret.
"""

from __future__ import annotations

import json
import os
import pwd
import shutil
import stat
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.e2e.lab_places import Slurm
from tests.e2e.places import metrics, until

from .slurm import SlurmLab

NAME = "torusstranger"
PLANTED = ("training/__init__.py", "training/__main__.py", "orchestrator/__init__.py", "submitit.py", "subprocess.py",
           "runpy.py", "sitecustomize.py", "json.py")  # fmt: skip
Said = subprocess.CompletedProcess[str]


class Stranger:
    """The other user, and a folder in which every user may write, like /tmp."""

    def __init__(self, lab: SlurmLab) -> None:
        self.lab = lab
        self.shared = lab.settings.root / "shared"
        self.shared.mkdir()
        self.shared.chmod(0o1777)
        self.pwned = lab.home / "pwned"  # in the home of the victim, where the stranger cannot write
        self.uid = pwd.getpwnam(NAME).pw_uid

    def does(self, script: str, timeout_s: float = 30) -> Said:
        """Run a shell script as the stranger in the shared folder."""
        return subprocess.run(
            ["bash", "-c", script], cwd=self.shared, user=NAME, group=NAME, extra_groups=[], text=True,
            capture_output=True, timeout=timeout_s, env={"PATH": "/usr/bin:/bin", "HOME": "/"},
        )  # fmt: skip

    def plants(self, names: Sequence[str]) -> None:
        """Write modules that record their import, with names that torusrun imports."""
        for name in names:
            said = self.does(
                f"mkdir -p {Path(name).parent}; echo \"open('{self.pwned}', 'a').write('{name} ')\" > {name}"
            )
            assert said.returncode == 0, said.stderr

    def runs_python(self, program: str, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [str(self.lab.python), "-c", program, *words], cwd="/", user=NAME, group=NAME, extra_groups=[], text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env={"PATH": "/usr/bin:/bin", "HOME": "/", "PYTHONPATH": str(self.lab.src / "src")},
        )  # fmt: skip


@pytest.fixture(scope="module")
def stranger(slurm_lab: SlurmLab) -> Iterator[Stranger]:
    subprocess.run(
        ["useradd", "--no-create-home", "--shell", "/bin/bash", NAME], check=False, capture_output=True, timeout=30
    )
    made = Stranger(slurm_lab)
    yield made
    shutil.rmtree(made.shared)
    subprocess.run(["pkill", "-KILL", "-u", NAME], check=False, timeout=30)
    subprocess.run(["userdel", NAME], check=True, capture_output=True, timeout=30)


@pytest.fixture
def place(slurm_lab: SlurmLab) -> Slurm:
    return Slurm(slurm_lab)


@pytest.fixture
def torusrun(place: Slurm) -> str:
    """The command as pip installs it, in the home of the victim."""
    program = "import sys\nfrom torusrun.orchestrator.cli.main import main\nsys.exit(main())\n"
    place.put("torusrun", f"#!{place.lab.python}\n{program}")
    place.run(["chmod", "755", "torusrun"])
    return str(place.folder / "torusrun")


def victim(place: Slurm, argv: Sequence[str], cwd: Path, timeout_s: float = 120) -> Said:
    return place.lab.run_as_user(list(argv), cwd=cwd, timeout_s=timeout_s)


def test_modules_planted_in_a_shared_folder_are_not_run(place: Slurm, stranger: Stranger, torusrun: str) -> None:
    stranger.plants(PLANTED)
    place.write_spec()
    words = ["submit", f"{place.folder}/run.yaml", "--set", f"site={place.folder}/site.yaml"]
    said = victim(place, [torusrun, *words, "--set", "train.epochs=2", "--wait"], stranger.shared, 240)
    assert said.returncode == 0, said.stdout + said.stderr
    assert not stranger.pwned.exists(), f"run as the victim: {stranger.pwned.read_text()}"
    assert place.view(said.stdout.split()[0])["accuracy"] > 0.5, "the victim's own training must have run"


def test_a_folder_called_last_is_not_the_last_run(place: Slurm, stranger: Stranger, torusrun: str) -> None:
    python = stranger.shared / "evil-python"
    stranger.does(f"printf '#!/bin/sh\\ntouch {stranger.pwned}\\n' > {python}; chmod 755 {python}")
    own = place.submit_script("true")
    place.watch(own)
    plan = (own / "plan.json").read_text().replace(json.loads((own / "plan.json").read_text())["python"], str(python))
    stranger.does(
        f"mkdir -p last/attempts; cat > last/plan.json <<'E'\n{plan}\nE\ntouch last/ledger.jsonl; chmod -R a+rX last"
    )
    for verb in ("resume", "cancel"):
        said = victim(place, [torusrun, verb, "last"], stranger.shared)
        assert said.returncode == 2 and own.name in said.stderr, f"'last' must be the victim's own run: {said.stderr}"
        said = victim(place, [torusrun, verb, "./last"], stranger.shared)
        assert said.returncode == 2 and "belongs to user" in said.stderr, said.stderr
    assert not stranger.pwned.exists()


def test_the_folder_of_staged_images_cannot_be_taken_first(place: Slurm, stranger: Stranger) -> None:
    uid = pwd.getpwnam(place.lab.settings.user).pw_uid
    image, secret = place.folder / "image.sif", place.folder / "precious"
    place.put("image.sif", "the victim's image")
    place.put("precious", "kept")
    program = (
        "import sys; from pathlib import Path; sys.path.insert(0, sys.argv[3])\n"
        "from tests.unit.test_node_folder import copied\n"
        "print(copied(Path(sys.argv[1]), sys.argv[2], '', Path('/attempt')).read_text())"
    )
    argv = [str(place.lab.python), "-c", program, str(image), str(stranger.shared), str(place.lab.src)]
    taken = stranger.shared / f"torusrun-{uid}"
    stranger.does(f"mkdir -m 777 {taken}")
    said = victim(place, argv, place.folder)
    assert said.returncode != 0 and f"{taken}" in said.stderr and "image" not in said.stdout, said.stderr
    stranger.does(f"rmdir {taken}; ln -s {place.folder} {taken}")
    said = victim(place, argv, place.folder)
    assert said.returncode != 0 and not list(place.folder.glob("*.partial")), said.stderr
    stranger.does(f"rm {taken}")
    said = victim(place, argv, place.folder)
    assert said.stdout.strip() == "the victim's image", said.stderr
    again = stranger.does(f"echo evil > {taken}/x; mv {taken} {taken}.away; ls {taken}")
    assert "evil" not in again.stdout and taken.is_dir() and stat.S_IMODE(taken.stat().st_mode) == 0o700
    assert secret.read_text() == "kept"


def test_a_run_is_made_where_no_stranger_can_reach_it_whatever_the_umask(
    place: Slurm, stranger: Stranger, torusrun: str
) -> None:
    runs = place.folder / "open" / "runs"
    site = place.site("open.yaml", runs=str(runs))
    place.write_script("true")
    words = ["sh", "-c", f"umask 000; {torusrun} submit script.yaml --set site={site}"]
    said = victim(place, words, place.folder)
    assert said.returncode == 0, said.stderr
    run = runs / said.stdout.strip()
    for attack in (
        f"mv {run} {run}.away",
        f"touch {run}/x",
        f"cat {run}/plan.json",
        f"ln -s /x {runs}/x",
        f"ls {runs}",
    ):
        assert stranger.does(attack).returncode != 0, f"the stranger could {attack!r}"
    place.torusrun("cancel", run.name)
    stranger.does("mkdir -m 777 common")
    common = place.site("common.yaml", runs=f"{stranger.shared}/common")
    said = place.torusrun("submit", "script.yaml", "--set", f"site={common}")
    assert said.returncode == 3 and "name one of your own" in said.stderr, said.stderr
    assert not list((stranger.shared / "common").iterdir())


def test_a_folder_put_into_the_place_of_an_attempt_is_not_run(place: Slurm, stranger: Stranger) -> None:
    """As if the stranger could exchange the run after its submission."""
    run = place.submit_script("true")
    place.watch(run)
    script = (run / "attempts/1/job.sh").read_text().replace(str(run), f"{stranger.shared}/{run.name}")
    place.put("exchanged.sh", script)
    stranger.does(f"mkdir -p {run.name}/attempts/1; ln -s {stranger.pwned} {run.name}/attempts/1/job.out")
    said = victim(place, ["bash", "exchanged.sh"], place.folder)
    assert said.returncode == 1 and "nothing is run from it" in said.stderr, said.stderr
    assert not stranger.pwned.exists()


def test_collecting_a_strangers_run_brings_and_costs_nothing_of_the_victims(
    place: Slurm, stranger: Stranger, torusrun: str
) -> None:
    place.put("secret", "the victim's secret")
    place.put(".kept.partial", "the victim's own file")
    links = {"job.out": place.folder / "secret", "job.err": "/dev/zero", "plan.json": place.folder / "secret"}
    stranger.does(
        "mkdir -p his/attempts/1/logs his/checkpoints; mkfifo his/attempts/1/logs/rank-0000.log; echo x > his/run.yaml"
    )
    for name, target in links.items():
        stranger.does(f"ln -s {target} his/attempts/1/{name}; ln -s {target} his/{name}; chmod -R a+rX his")
    said = victim(place, [torusrun, "collect", f"{stranger.shared}/his", str(place.folder / "kept")], place.folder, 60)
    assert "Traceback" not in said.stderr, said.stderr
    brought = [path for path in (place.folder / "kept").rglob("*") if path.is_file()]
    assert not [path for path in brought if "secret" in path.read_text()]
    assert sum(path.stat().st_size for path in brought) < 1000
    assert (place.folder / ".kept.partial").read_text() == "the victim's own file"
    for verb in (["status"], ["logs", "--all"], ["logs", "--errors"]):
        said = victim(place, [torusrun, *verb, f"{stranger.shared}/his"], place.folder, 60)
        assert "secret" not in said.stdout + said.stderr and "Traceback" not in said.stderr, said.stderr


def test_a_lock_planted_in_a_cache_truncates_nothing(place: Slurm, stranger: Stranger) -> None:
    place.put("precious", "kept")
    stranger.does(f"mkdir -m 777 images; ln -s {place.folder}/precious images/key.lock")
    program = (
        "import sys; from pathlib import Path; from torusrun.orchestrator.images.builds import running\n"
        "with running.held(Path(sys.argv[1])): print('held')"
    )
    said = victim(place, [str(place.lab.python), "-c", program, f"{stranger.shared}/images/key.lock"], place.folder)
    assert said.returncode != 0 and "held" not in said.stdout
    assert "key.lock" in said.stderr.splitlines()[-1], f"refused for another reason: {said.stderr}"
    assert (place.folder / "precious").read_text() == "kept"


SCAN = """
import sys, time
from datetime import timedelta
from torch.distributed import TCPStore
victim, until_s, evil, tried = sys.argv[1], time.monotonic() + float(sys.argv[2]), sys.argv[3], set()
print("watches", flush=True)
while time.monotonic() < until_s:
    for line in open("/proc/net/tcp").read().splitlines()[1:]:
        words = line.split()
        address, port = words[1].split(":")
        if words[3] == "0A" and words[7] == victim and (address, port) not in tried:
            tried.add((address, port))
            host = ".".join(str(b) for b in reversed(bytes.fromhex(address)))
            try:
                store = TCPStore(host, int(port, 16), None, False, timedelta(seconds=2), wait_for_workers=False)
                names = store.list_keys() if hasattr(store, "list_keys") else []
                for name in [*names, "resume", "here/1", "0//cpu//0/0"]:
                    store.set(name, evil)
                print("REACHED", host, int(port, 16), names, flush=True)
            except Exception as error:
                print("refused", host, int(port, 16), type(error).__name__, flush=True)
    time.sleep(0.01)
"""


def test_a_stranger_at_the_rendezvous_gets_no_weights_in(place: Slurm, stranger: Stranger, tmp_path: Path) -> None:
    """Ranks on one machine: the stranger sees their ports in /proc, and puts a checkpoint where they could read it."""
    here = "scheduler: local\nlauncher: spawn\nnode: {ranks: 4, interface: lo}\nstop_before: 10s\n"
    place.put("here.yaml", f"{here}runs: {place.folder}/runs\n")
    on_here = ("--set", "site=here.yaml", "--set", "nodes=1")
    own = place.submit(*on_here, "--set", "grid=1x1", "--set", "ranks_per_node=1", "--set", "train.epochs=2")
    assert place.watch(own).returncode == 0
    evil = stranger.shared / "step-00000090"
    shutil.copytree(max((own / "checkpoints").glob("step-*")), evil)
    subprocess.run(["chown", "-R", NAME, str(evil)], check=True, timeout=10)
    subprocess.run(["chmod", "-R", "a+rX", str(evil)], check=True, timeout=10)
    uid = str(pwd.getpwnam(place.lab.settings.user).pw_uid)
    attack = stranger.runs_python(SCAN, uid, "240", str(evil))
    assert attack.stdout and attack.stdout.readline() == "watches\n", "the stranger must be there before the run"
    run = place.submit(*on_here, "--set", "train.epochs=3")
    until(lambda: place.view(run)["state"] not in ("PENDING", "RUNNING", "UNKNOWN"), "the attacked run to end")
    attack.kill()
    heard = attack.communicate(timeout=10)[0]
    assert "REACHED" in heard or "refused" in heard, "the stranger must have found a port to try"
    view, starts = place.view(run), metrics(run, "start")
    assert all(start["resumed_from"] is None for start in starts), f"weights of the stranger's were loaded: {starts}"
    logs = "".join(path.read_text() for path in (run / "attempts/1/logs").iterdir())
    if view["state"] != "COMPLETED":
        assert "someone else writes to the store of this attempt" in logs, (view["reason"], heard, logs)


def test_the_stranger_is_nobody_special(stranger: Stranger) -> None:
    """The stranger has no special rights; else the tests above would prove nothing."""
    assert stranger.does(f"touch {stranger.pwned}").returncode != 0
    assert stranger.does("touch mine && rm mine").returncode == 0
    assert stranger.uid != os.geteuid()
