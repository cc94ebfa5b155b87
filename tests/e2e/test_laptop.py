"""The verbs from a laptop through a real sshd, with breaking links. The login node itself is the scheduler."""

import contextlib
import json
import os
import pwd
import re
import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import _skip_for, skipped_if_busy
from tests.e2e.places import until
from tests.e2e.test_forward import SERVER, served_on
from tests.lab.cluster import network, packages
from tests.lab.cluster.processes import run
from tests.lab.cluster.settings import REPO
from tests.lab.cluster.user import python
from tests.lab.login import Laptop, LoginNode
from tests.lab.login.laptop import CABLE, LOGIN_ADDRESS, NAMESPACE, OWN_END
from tests.lab.login.place import FOLDER, USER, Away, alone, checkout, make_user

SITE = """host: {host}
scheduler: local
launcher: spawn
python: {python}
node: {{ranks: 1, interface: lo}}
stop_before: 5s
kill_after: 5s
"""
COUNTS = "i=0; until test -e ../enough; do i=$((i+1)); echo line $i; sleep 0.1; done"
RUN = "name: {name}\nsite: ../site.yaml\ncommand: [sh, program.sh]\n"
pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def away() -> Iterator[Away]:
    _skip_for(packages.why_not_here())
    with skipped_if_busy(), alone():
        make_user()
        source = checkout()
        place = Away(FOLDER, USER, python(REPO, source), source)
        try:
            place.start()
            yield place
        finally:
            place.stop()


@pytest.fixture
def laptop(away: Away) -> Laptop:
    away.trust(away.login)
    away.laptop.put(".ssh/config", "")
    use(away.laptop, f"{USER}@{LOGIN_ADDRESS}")
    return away.laptop


def use(laptop: Laptop, host: str, **more: str) -> None:
    lines = "".join(f"{key}: {value}\n" for key, value in more.items())
    laptop.put("site.yaml", SITE.format(host=host, python=laptop.python) + lines)


def write(laptop: Laptop, name: str, program: str) -> str:
    laptop.put("project/program.sh", program)
    laptop.put("project/run.yaml", RUN.format(name=name))
    return "project/run.yaml"


def submit(laptop: Laptop, name: str, program: str) -> str:
    said = laptop.torusrun("submit", write(laptop, name, program))
    assert said.returncode == 0, said.stderr
    return said.stdout.strip()


def state(laptop: Laptop, run_id: str) -> dict:
    said = laptop.torusrun("status", run_id, "--json")
    assert said.returncode == 0, said.stderr
    return json.loads(said.stdout)["runs"][0]


def at_work(laptop: Laptop, run_id: str) -> None:
    """Wait until rank 0 has begun, which is later than the state RUNNING."""
    folder = Path(state(laptop, run_id)["folder"].partition(":")[2])
    until((folder / "attempts/1/ranks/0000.start.json").exists, "rank 0 to begin")


def test_a_run_from_its_submission_to_its_collection(away: Away, laptop: Laptop) -> None:
    assert not laptop.sh(["sh", "-c", "command -v sbatch || command -v qsub"]).stdout, "it has no scheduler"
    run_id = submit(laptop, "whole", "echo made on $(hostname); ls")
    followed = laptop.torusrun("watch", run_id)
    assert followed.returncode == 0 and "COMPLETED" in followed.stdout, followed.stdout + followed.stderr
    assert "program.sh" in laptop.torusrun("logs", run_id).stdout, "the code of the laptop"
    view = state(laptop, run_id)
    assert view["state"] == "COMPLETED" and view["site"] == "site"
    assert laptop.torusrun("collect", run_id, "out").returncode == 0
    folder = Path(view["folder"].partition(":")[2])
    assert (laptop.home / "out/code/program.sh").read_bytes() == (folder / "code/program.sh").read_bytes()
    log = "attempts/1/logs/rank-0000.log"
    assert (laptop.home / "out" / log).read_bytes() == (folder / log).read_bytes()
    assert json.loads((folder / "provenance.json").read_text())["submitted_from"]["user"] == "lablaptop"
    assert not list(folder.parent.glob(".torusrun-collect-*")), "the copy that was fetched is removed"


def test_nothing_is_installed_twice(away: Away, laptop: Laptop) -> None:
    first = submit(laptop, "once", "echo once")
    assert laptop.torusrun("watch", first).returncode == 0, "then all modules are compiled there"
    home = away.folder / "home"
    place = home / ".local/share/torusrun"
    before = sorted((path, path.lstat().st_ino) for path in place.rglob("*"))
    submit(laptop, "once", "echo once")
    assert sorted((path, path.lstat().st_ino) for path in place.rglob("*")) == before
    assert not list(place.glob(".*")), "nothing is left half-installed"


def test_what_is_shown_ends_with_its_link_and_there_with_it(away: Away, laptop: Laptop) -> None:
    run_id = submit(laptop, "long", COUNTS)
    at_work(laptop, run_id)
    follower = laptop.begin("logs", run_id, "--follow")
    assert follower.stdout and follower.stdout.readline() == "line 1\n"
    following = lambda: [*requests()]  # noqa: E731
    until(following, "the verb there")
    away.login.drop()
    _, err = follower.communicate(timeout=120)
    assert follower.returncode == 3 and "the link broke" in err, err
    until(lambda: not following(), "the verb there to end")
    assert laptop.torusrun("cancel", run_id).returncode == 0


def requests() -> Iterator[Path]:
    """The processes on the login node that carry out a request."""
    user = pwd.getpwnam(USER).pw_uid
    for words in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if words.stat().st_uid == user and b"exec(sys.stdin.buffer.read" in words.read_bytes():
                yield words


def dropped(away: Away, client: subprocess.Popen[str], progress: Callable[[], int]) -> None:
    """Drop the connections three times, each time after the client has got further, unless it ends earlier."""
    last = cuts = 0
    while cuts < 3:
        further = until(lambda last=last: client.poll() is not None or max(0, progress() - last), "the client to go on")
        if client.poll() is not None:
            break
        away.login.drop()
        last, cuts = last + further, cuts + 1
    assert cuts, client.communicate()


def test_collecting_continues_where_it_was_when_links_break(away: Away, laptop: Laptop) -> None:
    run_id = submit(laptop, "large", "head -c 30000000 /dev/urandom | base64")
    assert laptop.torusrun("watch", run_id).returncode == 0
    collector = laptop.begin("collect", run_id, "large")
    log = "attempts/1/logs/rank-0000.log"
    parts = str(Path(log).parent / ".torusrun-*")  # a file has its name once it is whole
    with network.slow(CABLE, 1e7):  # half a minute for all: the first cut comes before that on a busy machine, too
        dropped(away, collector, lambda: sum(p.stat().st_size for p in laptop.home.glob(f".torusrun-*/{parts}")))
    _, err = collector.communicate(timeout=600)
    assert collector.returncode == 0 and "trying again" in err, err
    there = Path(state(laptop, run_id)["folder"].partition(":")[2])
    assert (laptop.home / "large" / log).read_bytes() == (there / log).read_bytes()
    assert not list(laptop.home.glob(".torusrun-*")) and not list(there.parent.glob(".torusrun-collect-*"))


def test_a_submission_over_a_broken_link_makes_one_run(away: Away, laptop: Laptop) -> None:
    path = write(laptop, "single", "sleep 1")
    laptop.put("project/large", str(uuid.uuid4()) + os.urandom(1_500_000).hex())
    cache = away.folder / "home/.cache/torusrun"
    sent = lambda: any(cache.glob("sent-*"))  # noqa: E731
    with network.slow(OWN_END, 2e6, NAMESPACE):  # 12 s for all
        submitter = laptop.begin("submit", path)
        dropped(away, submitter, lambda: away.login.connections() if sent() else 0)
    out, err = submitter.communicate(timeout=600)
    assert submitter.returncode == 0, err
    made = [folder.name for folder in (away.folder / "home/torusrun/runs").glob("single-*")]
    assert made == [out.strip()]


def test_the_commands_of_the_page(laptop: Laptop) -> None:
    """The run is cancelled while it waits; its second attempt ends by itself."""
    use(laptop, f"{USER}@{LOGIN_ADDRESS}")
    laptop.put(".config/torusrun/sites/cluster.yaml", (laptop.home / "site.yaml").read_text())
    laptop.put("run.yaml", RUN.format(name="page") + "code: page\n")
    laptop.put("page/program.sh", "test -e ../../again && exit 0; touch ../../again; exec sleep 600")
    page = (REPO / "docs" / "guides" / "remote.md").read_text()
    commands = re.findall(r"^    torusrun (.*)$", page, re.MULTILINE)
    assert len(commands) == 13
    for command in commands:
        if command == "cancel last":
            folder = Path(state(laptop, "last")["folder"].partition(":")[2])
            until((folder.parent / "again").exists, "the program of the run to begin")
        said = laptop.torusrun(*command.split())
        assert said.returncode == 0, f"{command}: {said.stdout}{said.stderr}"
        if command == "cancel last":
            assert laptop.torusrun("watch", "last").returncode == 1
            assert state(laptop, "last")["state"] == "CANCELLED"
    until(lambda: state(laptop, "last")["state"] == "COMPLETED", "the run after it")
    assert (laptop.home / "results/run/attempts/2/end.json").exists()


def test_a_host_that_does_not_answer_makes_no_run_fail(laptop: Laptop) -> None:
    run_id = submit(laptop, "cut", COUNTS)
    folder = Path(state(laptop, run_id)["folder"].partition(":")[2])
    laptop.unplug()
    try:
        view = state(laptop, run_id)
    finally:
        laptop.plug()
    (folder / "enough").touch()
    assert view["state"] == "UNKNOWN"
    assert re.search("(No route to host|no answer within 8 s); .* ago it was", view["reason"]), view["reason"]


@pytest.mark.parametrize("connect", ["fabric", "openssh"])
def test_an_unknown_and_a_changed_host_key_are_refused(away: Away, laptop: Laptop, connect: str) -> None:
    use(laptop, f"{USER}@{LOGIN_ADDRESS}", connect=connect)
    path = write(laptop, "refused", "true")
    laptop.put(".ssh/known_hosts", "")
    unknown = laptop.torusrun("submit", path)
    assert unknown.returncode == 3 and "Traceback" not in unknown.stderr
    assert "host key" in unknown.stderr and (connect == "openssh" or away.login.fingerprint in unknown.stderr)
    other = LoginNode(away.folder / "other", USER, LOGIN_ADDRESS)
    other.folder.mkdir(exist_ok=True)
    other.make_key()
    away.trust(other)
    changed = laptop.torusrun("submit", path)
    assert changed.returncode == 3 and "CHANGED" in changed.stderr, changed.stderr
    assert (laptop.home / ".ssh/known_hosts").read_text() == other.known_as, "no key is accepted"


def test_a_connection_of_openssh_is_shared(away: Away, laptop: Laptop) -> None:
    """The master is started by hand, as with a second factor; after that the login node accepts no key."""
    laptop.put(
        ".ssh/config",
        f"Host cluster\n  HostName {LOGIN_ADDRESS}\n  User {USER}\n  ControlPath ~/.ssh/%C\n  ControlMaster auto\n"
        "  ControlPersist 120\n",
    )
    use(laptop, "cluster")
    assert laptop.sh(["ssh", "-fN", "cluster"]).returncode == 0
    (keys := away.folder / "sshd/authorized_keys").write_text("")
    try:
        run_id = submit(laptop, "shared", "echo shared")
        assert laptop.torusrun("watch", run_id).returncode == 0
        laptop.sh(["ssh", "-O", "exit", "cluster"])
        refused = laptop.torusrun("status", run_id)
        assert "Permission denied" in refused.stdout or "COMPLETED" in refused.stdout
        use(laptop, f"{USER}@{LOGIN_ADDRESS}", connect="fabric")
        said = laptop.torusrun("submit", "project/run.yaml")
        assert said.returncode == 3 and "second factor" in said.stderr
    finally:
        keys.write_text(f"{laptop.public_key}\n")


def test_a_jump_host_is_honoured_and_verified(away: Away, laptop: Laptop) -> None:
    """The laptop can reach the login node's address only through the jump host."""
    run(["ip", "addr", "add", "10.79.0.1/32", "dev", "lo"])
    inner = LoginNode(away.folder / "inner", USER, "10.79.0.1")
    try:
        inner.start()
        inner.admit(laptop.public_key)
        laptop.put(
            ".ssh/config", f"Host inner\n  HostName 10.79.0.1\n  User {USER}\n  ProxyJump {USER}@{LOGIN_ADDRESS}\n"
        )
        use(laptop, "inner", connect="fabric")
        refused = laptop.torusrun("submit", write(laptop, "fabric", "true"))
        assert refused.returncode == 3 and "fabric does not read ProxyJump" in refused.stderr
        use(laptop, "inner", connect="openssh")
        away.trust(inner)
        refused = laptop.torusrun("submit", write(laptop, "through", "true"))
        assert refused.returncode == 3 and "Host key verification failed" in refused.stderr
        away.trust(away.login, inner)
        run_id = submit(laptop, "through", "true")
        assert laptop.torusrun("watch", run_id).returncode == 0
    finally:
        inner.stop()
        run(["ip", "addr", "del", "10.79.0.1/32", "dev", "lo"])


@pytest.mark.parametrize("connect", ["fabric", "openssh"])
def test_a_login_node_without_a_fitting_python_is_reported(laptop: Laptop, connect: str) -> None:
    path = write(laptop, "old", "true")
    use(laptop, f"{USER}@{LOGIN_ADDRESS}", connect=connect)
    site = (laptop.home / "site.yaml").read_text()
    missing, silent = (
        "/nowhere/python: .*(not found|No such file)",
        "it said nothing; `/bin/false` ended with exit code 1 ",
    )
    for program, why in (("/nowhere/python", missing), ("/bin/false", silent)):
        laptop.put("site.yaml", site.replace(laptop.python, program))
        said = laptop.torusrun("submit", path)
        assert said.returncode == 3 and "Python 3.10 or newer is needed" in said.stderr
        assert re.match(f"torusrun: {USER}@{LOGIN_ADDRESS}: .*{why}", said.stderr), said.stderr
        assert f"; `{program}` ended with exit code " in said.stderr


def test_a_mistake_that_the_login_node_finds_names_the_file_of_the_laptop(laptop: Laptop) -> None:
    path = write(laptop, "image", "true")
    laptop.put("project/run.yaml", (laptop.home / path).read_text() + "image: /nowhere/image.sif\n")
    said = laptop.torusrun("submit", path)
    assert said.returncode in (2, 3) and "/nowhere/image.sif" in said.stderr
    assert not re.search(r"/sent-|Traceback", said.stderr), said.stderr
    assert "image" not in laptop.torusrun("status").stdout, "a run that was refused is not listed"


def test_attempts_and_shells_in_a_held_allocation(away: Away, laptop: Laptop) -> None:
    path = write(laptop, "inside", "echo in $(basename $(dirname $PWD)); test -e ../../../../enough || exec sleep 600")
    said = laptop.torusrun("hold", path, "--time", "30m", "--name", "kept", "--wait")
    assert said.returncode == 0 and "held for" in said.stderr, said.stderr
    held = said.stdout.strip()
    first = laptop.torusrun("submit", path, "--in", "last").stdout.strip()
    at_work(laptop, first)
    command = ["sh", "-c", 'read word; echo "$word" "$RANK"; echo err >&2; exit 7']
    said = laptop.torusrun("shell", first, "--", *command, stdin='it\'s "é"\n')
    assert (said.returncode, said.stdout, said.stderr) == (7, 'it\'s "é" 0\n', "err\n")
    with laptop.on_terminal("shell", first) as terminal:
        at = terminal.until("$ ")
        terminal.resize(100, 30)
        terminal.press("sh -c 'printf be%s gun; exec sleep 600'\n")
        at = terminal.until("begun", at)  # ctrl-C must end the program that prints it, so it is in the foreground
        terminal.press("\x03")
        at = terminal.until("$ ", at)
        terminal.press("stty size; exit 5\n")
        terminal.until("30 100", at)
        assert terminal.ended() == 5 and terminal.settled
    assert laptop.torusrun("cancel", first).returncode == 0
    laptop.torusrun("watch", first)
    (away.folder / "home/enough").touch()
    said = laptop.torusrun("resume", first, "--in", held, "--wait")
    assert said.returncode == 0, said.stdout + said.stderr
    assert laptop.torusrun("cancel", held).returncode == 0
    assert laptop.torusrun("watch", held).returncode == 1
    refused = laptop.torusrun("submit", path, "--in", held)
    assert refused.returncode == 2 and "no attempt can be started in it" in refused.stderr


FETCHES = """
import sys, urllib.request
with urllib.request.build_opener().open(f"http://{sys.argv[1]}/large", timeout=60) as answer:
    print(len(answer.read()))
"""


def test_a_port_of_a_ranks_host_opens_on_the_laptop(away: Away, laptop: Laptop) -> None:
    use(laptop, f"{USER}@{LOGIN_ADDRESS}", connect="openssh")
    run_id = submit(laptop, "serves", f"head -c 20000000 /dev/zero > large\nexec {SERVER} > served 2>&1")
    at_work(laptop, run_id)
    port = served_on(Path(state(laptop, run_id)["folder"].partition(":")[2]) / "code/served")
    forward = laptop.begin("forward", run_id, port)
    assert forward.stdout and forward.stdout.readline() == f"127.0.0.1:{port}\n", "the same port, on the laptop"
    fetch = lambda: laptop.sh([laptop.python, "-c", FETCHES, f"127.0.0.1:{port}"])  # noqa: E731
    until(lambda: fetch().stdout == "20000000\n", "the server beside the rank")
    assert laptop.torusrun("cancel", run_id).returncode == 0
    _, err = forward.communicate(timeout=120)
    assert forward.returncode == 0 and f"attempt 1 of {run_id} has ended (CANCELLED: " in err, err
    refused = laptop.torusrun("forward", run_id, port)
    assert refused.returncode == 2 and "is CANCELLED" in refused.stderr and not refused.stdout, refused
