"""The architecture as it is meant to be: which way imports run, what starting up costs, and a true docs page."""

import ast
import importlib
import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.unit.run_folders import DONE, make, write_specs
from torusrun.orchestrator import schedulers
from torusrun.orchestrator.schedulers import launchers

ROOT = Path(__file__).resolve().parents[2]

# From the bottom up. A part of the kernel may use the parts before it; a room may use the kernel; the verbs use both.
KERNEL = ["base", "keys", "place", "forecast", "schedulers", "images", "run", "job"]
ROOMS = ["predict", "sweeps", "nodes", "show", "upkeep", "beside", "sites", "remote", "submitit"]
PACKAGES = [*KERNEL, *ROOMS, "cli"]
SCHEDULERS_COMMANDS = {
    "submit_command", "status_query", "accounting_query", "find_query", "start_query", "cancel_command",
    "after_loss_command", "cancel_tasks_command", "leave_out_command", "query_facts",
    "query_hosts", "shell_command",
}  # fmt: skip
CLIENTS = [ROOT / "orchestrator/schedulers" / name for name in ("client.py", "interface.py")]
GATEWAY = {"process.module", "process.program", "process.bare_program", "process.script"}
EXAMPLES = {"tokens.py", "x.py", "annotations.md"}  # of a user, of OCI's specification
TRACKED = [
    path.relative_to(ROOT)
    for top in ("orchestrator", "training", "benchmarks", "tests", "docs", "templates", "containers", "examples")
    for path in (ROOT / top).rglob("*.*")
]
NOT_FOR_HELP = {"rich", "jinja2", "pydantic", "submitit", "fabric", "torch", "yaml", "numpy"}
NOT_FOR_STATUS = {"rich", "jinja2", "pydantic", "submitit", "fabric", "torch", "numpy"}


@cache
def nodes(path: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(path.read_text())))


@cache
def imports(path: Path) -> set[str]:
    found = set()
    for node in nodes(path):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = path.relative_to(ROOT).parts[: -node.level] if node.level else ()
            module = ".".join([*above, *filter(None, [node.module])])
            found |= {module, *(f"{module}.{alias.name}" for alias in node.names)}
    return found


def package(path: Path) -> str:
    return path.relative_to(ROOT / "orchestrator").parts[0].removesuffix(".py")


FILES = [
    p
    for p in (ROOT / "orchestrator").rglob("*.py")
    if p.name not in ("__init__.py", "__main__.py") or p.parent.name != "orchestrator"
]


def may_use(ours: str, theirs: str) -> bool:
    """True if the package `ours` may import the package `theirs`."""
    if ours in KERNEL and theirs in KERNEL:
        return KERNEL.index(theirs) <= KERNEL.index(ours)
    return ours in (theirs, "cli") or theirs in KERNEL


def wrong_way_imports() -> list[str]:
    """Each import of the orchestrator that runs the wrong way, as 'FILE imports MODULE'."""
    files = {module for module, path in modules("orchestrator").items() if path.name != "__init__.py"}
    return [
        f"{path.relative_to(ROOT)} imports {module}"
        for path in FILES
        for module in sorted(imports(path) & files)
        if not may_use(package(path), module.split(".")[2])
    ]


def test_the_kernel_uses_no_room_and_no_room_another() -> None:
    wrong = wrong_way_imports()
    assert not wrong, "\n".join(wrong)


def test_no_parts_of_a_package_import_each_other_in_a_circle() -> None:
    """A part is a folder in one of the packages, such as run/plan/."""
    uses: dict[str, set[str]] = {}
    for path in FILES:
        part = path.relative_to(ROOT).parts[:3]
        if len(path.relative_to(ROOT).parts) > 3:
            used = {tuple(module.split(".")[1:4]) for module in imports(path)}
            inside = {other for other in used if other[:2] == part[:2] and ROOT.joinpath(*other).is_dir()}
            uses.setdefault("/".join(part), set()).update("/".join(other) for other in inside - {part})
    try:
        tuple(TopologicalSorter(uses).static_order())
    except CycleError as error:
        pytest.fail(f"these import each other: {' <- '.join(error.args[1])}")


@cache
def modules(name: str) -> dict[str, Path]:
    """The modules of a package and of the packages in it, with their files."""
    files = (ROOT / name).rglob("*.py")
    return {
        ".".join(("torusrun", *p.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__"): p for p in files
    }


@pytest.mark.parametrize("name", ["orchestrator", "training"])
def test_no_files_import_each_other_in_a_circle(name: str) -> None:
    """Imports inside functions and those for types alone count, too."""
    files = modules(name)
    uses = {}
    for module, path in files.items():
        found = imports(path) & files.keys() - {module}
        packages = {used for used in found if any(other.startswith(f"{used}.") for other in found)}
        uses[module] = found - packages  # `from package import module` uses the module
    try:
        tuple(TopologicalSorter(uses).static_order())
    except CycleError as error:
        pytest.fail(f"these import each other: {' <- '.join(error.args[1])}")


@pytest.mark.parametrize("name", ["orchestrator", "training"])
def test_no_two_classes_have_the_same_name(name: str) -> None:
    places: dict[str, list[str]] = {}
    for module, path in modules(name).items():
        for node in ast.iter_child_nodes(nodes(path)[0]):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(module)
    assert not {found: where for found, where in places.items() if len(where) > 1}


def test_only_the_client_asks_for_a_schedulers_commands() -> None:
    """What runs them has their time limits and knows what their failures mean."""
    called = {path: {node.attr for node in nodes(path) if isinstance(node, ast.Attribute)} for path in FILES}
    wrong = [path for path in FILES if called[path] & SCHEDULERS_COMMANDS and path not in CLIENTS]
    assert not wrong, f"{wrong}: go through schedulers.client.Client"


def test_nothing_asks_which_scheduler_or_launcher_it_is() -> None:
    """All that differs between them is in their own folders, as attributes and functions."""
    names = {*schedulers.KNOWN, *launchers.KNOWN, *launchers.ASKED}
    wrong = [
        f"{path}:{node.lineno}: give the interface an attribute for it"
        for path in FILES
        for node in nodes(path)
        if isinstance(node, ast.Compare) and {o.value for o in ast.walk(node) if isinstance(o, ast.Constant)} & names
    ]
    assert not wrong, "\n".join(wrong)


def is_python(node: ast.AST) -> bool:
    """Whether an expression names a Python: sys.executable, `python`, `plan.python`, "python3", or one or another."""
    if isinstance(node, ast.BoolOp):
        return any(map(is_python, node.values))
    if isinstance(node, ast.IfExp):
        return is_python(node.body) or is_python(node.orelse)
    if isinstance(node, ast.Call):
        return ast.unparse(node.func) in ("str", "shlex.quote") and is_python(node.args[0])
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str) and re.fullmatch(r"(.*/)?python[\d.]*", node.value) is not None
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    return name in ("python", "interpreter") or ast.unparse(node) == "sys.executable"


def starts_python(tree: list[ast.AST]) -> Iterator[str]:
    """The command lines of a Python, as words or as a text."""
    for node in tree:
        words = node.elts if isinstance(node, ast.List | ast.Tuple) else []
        if isinstance(node, ast.Call) and ast.unparse(node.func) not in GATEWAY:
            words = node.args
        follows = [ast.unparse(word) for word in words if not is_python(word)]
        if len(follows) < len(words) and any(re.search(r"^['\"]-|^\*|__file__", word) for word in follows):
            yield ast.unparse(node)
        if isinstance(node, ast.JoinedStr) and re.search(r"\} -[cmuPI]\b", ast.unparse(node)):
            yield ast.unparse(node)


def test_a_python_is_started_by_the_gateway_alone_and_no_program_is_looked_for_in_the_working_directory() -> None:
    """What else starts one finds modules in the working directory."""
    wrong = [f"{path}: {found}" for path in FILES if path.name != "process.py" for found in starts_python(nodes(path))]
    assert not wrong, f"{wrong}: let process.module, program or script make it"
    wrong = [path for path in FILES if "shutil.which" in path.read_text() and path.name != "environment.py"]
    assert not wrong, f"{wrong}: ask environment.which"


def test_every_package_is_on_the_list() -> None:
    assert {package(p) for p in FILES} == set(PACKAGES), "list it in PACKAGES and docs/architecture.md"


def test_training_knows_nothing_of_the_orchestrator_which_never_imports_torch() -> None:
    files = [path for path in (ROOT / "training").rglob("*.py") if "entry" not in path.parts]
    assert not [path for path in files if any(m.startswith("torusrun.orchestrator") for m in imports(path))]
    files = (ROOT / "orchestrator").rglob("*.py")
    assert not [path for path in files if {m.split(".")[0] for m in imports(path)} & {"torch", "numpy"}]


def test_the_unit_tests_need_no_torch() -> None:
    """They run on a Python for which there is no torch yet."""
    files = (path.relative_to(ROOT) for path in (ROOT / "tests/unit").rglob("*.py"))
    names = [".".join(path.with_suffix("").parts) for path in files]
    program = f"""import importlib, sys
sys.path[0], sys.modules["torch"] = {str(ROOT)!r}, None
for name in sys.argv[1:]: importlib.import_module(name)"""
    said = subprocess.run([sys.executable, "-c", program, *names], capture_output=True, text=True, timeout=120)
    assert said.returncode == 0, f"move it to tests/training:\n{said.stderr}"


def modules_after(*argv: str, stderr: int = subprocess.PIPE) -> set[str]:
    """The modules that a verb has imported when it ends, its output going to a pipe."""
    program = (
        "import sys\nfrom torusrun.orchestrator.cli.main import main\n"
        "try: main(sys.argv[1:])\nexcept SystemExit: pass\n"
        "print('MODULES', *sorted({m.split('.')[0] for m in sys.modules}))"
    )
    said = subprocess.run(
        [sys.executable, "-c", program, *argv], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=stderr,
        env={**os.environ, "TERM": "xterm"}, text=True, timeout=240, cwd=ROOT,
    )  # fmt: skip
    return set(said.stdout.rpartition("MODULES ")[2].split())


@pytest.mark.parametrize("argv", [["--help"], [], ["--version"], ["submit", "--help"], ["status", "--help"]])
def test_help_imports_nothing_heavy(argv: list[str]) -> None:
    loaded = modules_after(*argv)
    assert "argparse" in loaded, "the probe itself did not run"
    assert not loaded & NOT_FOR_HELP


def test_the_list_of_verbs_needs_no_types() -> None:
    assert "typing" not in modules_after("--help"), "it takes a tenth of the start: import it under TYPE_CHECKING alone"


@pytest.mark.parametrize("argv", [["status"], ["sites"], ["doctor"], ["data"]])
def test_verbs_of_a_login_node_import_nothing_heavy(argv: list[str], home: Path) -> None:
    loaded = modules_after(*argv)
    assert "argparse" in loaded and not loaded & NOT_FOR_STATUS


def test_status_makes_no_plan_and_imports_little(home: Path) -> None:
    """Each imported file costs milliseconds in a home folder on NFS (benchmarks/slow_files.py)."""
    loaded = modules_after("status")
    assert "argparse" in loaded and not loaded & {"yaml", "statistics", "hashlib", "shutil", "ctypes", "tempfile"}


def test_a_plain_dry_run_executes_no_room(home: Path) -> None:
    program = (
        "import sys\nfrom torusrun.orchestrator.cli.main import main\n"
        "main(['submit', 'examples/digits.yaml', '--dry-run'])\nprint('MODULES', *sys.modules)"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=240, cwd=ROOT)
    executed = {name.split(".")[2] for name in said.stdout.rpartition("MODULES ")[2].split() if "orchestrator." in name}
    assert "run" in executed, said.stderr
    assert not executed & {*ROOMS}


def test_watch_is_drawn_by_rich_on_a_terminal_alone(home: Path) -> None:
    run = make(write_specs(home), DONE)
    loaded = modules_after("watch", run.run_id)
    assert "argparse" in loaded and not loaded & NOT_FOR_STATUS
    keeper, there = pty.openpty()
    try:
        assert "rich" in modules_after("watch", run.run_id, stderr=there)
    finally:
        os.close(there)
        os.close(keeper)


def test_the_document_of_the_architecture_names_every_package() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    places = [p for p in (ROOT / "orchestrator").iterdir() if p.is_dir() and (p / "__init__.py").exists()]
    places += [p for p in (ROOT / "training").iterdir() if p.is_dir() and (p / "__init__.py").exists()]
    missing = [p.relative_to(ROOT) for p in places if f"{p.name}/" not in text]
    assert not missing, f"docs/architecture.md does not mention {missing}"
    named = {word.strip("`") for word in text.split() if word.strip("`").endswith(".py")}
    there = [path for top in ROOT.iterdir() if not top.name.startswith(".") for path in (top, *top.rglob("*.py"))]
    gone = [name for name in named if not any(path.match(name) for path in there)]
    assert not gone, f"docs/architecture.md names files that there are not: {gone}"


def test_every_path_that_a_docstring_or_comment_names_exists() -> None:
    """`job/supervise.py` may be the end of a path. Names of users' files are in EXAMPLES."""
    ends = {"/".join(path.parts[at:]) for path in TRACKED for at in range(len(path.parts))}
    gone = []
    for path in (path for path in TRACKED if path.parts[0] in ("orchestrator", "training") and path.suffix == ".py"):
        words = "\n".join(re.findall(r'(?s:""".*?""")|#.*', (ROOT / path).read_text()))
        names = re.findall(r"(?<![\w./~$-])([\w/]+(?:\.\w+)*\.(?:py|md|j2))\b", words)
        gone += [f"{path}: {name}" for name in names if name not in ends and name not in EXAMPLES]
    assert not gone, "these files do not exist:\n" + "\n".join(gone)


def test_ours_are_imported_below_torusrun_alone() -> None:
    """`training` and `orchestrator` are names of users' own folders."""
    ours = [*FILES]
    for folder in ("training", "tests", "examples"):
        ours += (ROOT / folder).rglob("*.py")
    wrong = [path for path in ours if any(name.startswith(("orchestrator.", "training.")) for name in imports(path))]
    assert not wrong, f"{wrong}: import torusrun.orchestrator or torusrun.training"


def test_a_source_distribution_has_all_that_a_wheel_is_made_of() -> None:
    sdist = pytest.importorskip("hatchling.builders.sdist").SdistBuilder(str(ROOT))
    wheel = importlib.import_module("hatchling.builders.wheel").WheelBuilder(str(ROOT))
    packed, needed = ({file.relative_path for file in made.recurse_included_files()} for made in (sdist, wheel))
    assert len(needed) > 500 and not needed - packed


def test_the_package_of_a_checkout_has_what_is_installed() -> None:
    tomllib = pytest.importorskip("tomllib", reason="Python 3.10 has none")
    hatch = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    paths = [path for path in (ROOT / "src" / "torusrun").iterdir() if path.name != "__pycache__"]
    links = {path.name: path.resolve().relative_to(ROOT) for path in paths}
    mapped = {name: where for name, where in hatch["sources"].items() if name != "src/torusrun"}
    assert mapped == {name: f"torusrun/{name}" for name in links if "." not in name}
    assert {f"src/torusrun/{name}" for name in links if "." in name} | {*mapped} == {*hatch["only-include"]}
    assert {str(where) for name, where in links.items() if "." not in name} == {*mapped}
