"""Every command that README and docs give is executed as it is written there, in a fresh shell with a new home."""

import itertools
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import yaml

from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.cli.main import _parse
from torusrun.orchestrator.images.definitions.image_file import ImageFile
from torusrun.orchestrator.keys.load import load
from torusrun.orchestrator.keys.read import read
from torusrun.orchestrator.keys.run import RunSpec
from torusrun.orchestrator.keys.site import Site
from torusrun.orchestrator.run.attempts.submit import proposed
from torusrun.orchestrator.run.folder.run_folder import Attempt, RunFolder, listed
from torusrun.orchestrator.run.plan.plan import plan
from torusrun.orchestrator.show.placement import outlook

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
DOCS = ROOT / "docs"
PAGES = [README, ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]
COMMAND = r"(?:torusrun|make|python3?|pip|\./?) "

# `make demo` made the environment that runs this test, and `make test` is this suite: make only says what it would do.
BEFORE = 'trap "echo failed: \\$BASH_COMMAND" ERR\nmake() { command make --dry-run "$@" > /dev/null; }\nset -e\n'
ACTIVATE = ". .venv/bin/activate\n"


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


def console(page: Path) -> list[tuple[str, str]]:
    """The commands of a page that are shown with what they print."""
    parts = (re.split(r"^\$ ", block, flags=re.MULTILINE)[1:] for block in blocks(page, "console"))
    return [(part.partition("\n")[0], part.partition("\n")[2]) for part in itertools.chain(*parts)]


def not_executed(page: Path) -> list[str]:
    """The commands of a page that stand below the reason why they are not executed."""
    found = re.findall(r"^<!-- not executed: \S.* -->\n\n((?:    .*\n|\n)+)", page.read_text(), re.MULTILINE)
    text = "".join(found).replace("\\\n", " ")
    return [line.strip() for line in text.splitlines() if line.strip()]


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that looks like a clone after `make demo`. Its files and its environment are those of this test."""
    if not (Path(sys.prefix) / "bin" / "activate").exists():
        pytest.skip("this Python is in no virtual environment: use the one that `make demo` makes")
    folder = tmp_path_factory.mktemp("user") / "clone"
    folder.mkdir()
    for name in ("Makefile", "pyproject.toml", "examples", "docs", "containers", "templates"):
        (folder / name).symlink_to(ROOT / name)
    (folder / ".venv").symlink_to(sys.prefix)
    return folder


def typed(commands: str, checkout: Path) -> subprocess.CompletedProcess[str]:
    """Type `commands` into a new shell. PYTHONPATH is for an environment that belongs to another checkout."""
    environment = {"HOME": str(checkout.parent), "PATH": os.defpath, "LANG": "C.UTF-8", "PYTHONPATH": str(ROOT / "src")}
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-c", commands], cwd=checkout, env=environment, text=True, timeout=900,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def attempts(checkout: Path) -> dict[str, int]:
    runs = (checkout.parent / "torusrun" / "runs").iterdir()
    return {run.name: len(list(run.glob("attempts/*"))) for run in runs}  # the folder of a sweep has none


@pytest.mark.timeout(3600)  # all pages, one after the other: 5 minutes on two idle cores, 20 on busy ones
def test_every_command_runs_in_a_fresh_shell(checkout: Path) -> None:
    pytest.importorskip("torch")
    known: set[str] = set()
    for page in PAGES:
        commands = "".join(blocks(page, "sh"))
        if not known.issuperset(commands.splitlines()):
            known.update(commands.splitlines())
            said = typed(BEFORE + (ACTIVATE if page != README else "") + commands, checkout)
            assert said.returncode == 0, f"{page.name}:\n{said.stdout}"
    (resumed,) = (run for run, count in attempts(checkout).items() if count == 2)
    ledger = (checkout.parent / "torusrun" / "runs" / resumed / "metrics.jsonl").read_text()
    starts = [record for record in map(json.loads, ledger.splitlines()) if "resumed_from" in record]
    assert starts[-1]["resumed_from"], "the recipe for a failure waits for a checkpoint"


@pytest.mark.parametrize("page", [page for page in PAGES if console(page)], ids=lambda page: page.stem)
def test_commands_print_what_the_page_shows(page: Path, checkout: Path) -> None:
    for command, shown in console(page):
        said = typed(ACTIVATE + command, checkout).stdout
        pattern = re.escape(shown).replace(r"\.\.\.", ".*")  # dots stand for what the page leaves out
        assert re.fullmatch(pattern, said, re.DOTALL), f"{page.name}: $ {command}\n{said}"


def refused(line: str) -> bool:
    """Whether torusrun refuses an option of this command."""
    try:
        words = shlex.split(line, comments=True)[1:]
        _parse([*itertools.takewhile(lambda word: not word.startswith(">"), words)])
    except (SystemExit, UserError):
        return True
    return False


def test_what_is_not_executed_has_a_reason_and_valid_options() -> None:
    wrong = []
    for page in PAGES:
        skipped = not_executed(page)
        wrong += [f"{page.name}: {line}" for line in skipped if line.startswith("torusrun ") and refused(line)]
        indented = {line.strip() for line in re.findall(rf"^    {COMMAND}.*", page.read_text(), re.MULTILINE)}
        unexplained = indented - {*skipped, *map(str.strip, "".join(blocks(page, "sh")).splitlines())}
        wrong += [f"{page.name}: give a reason above {line}" for line in unexplained]
    assert not wrong, "\n".join(wrong)


def test_the_python_of_the_readme_runs(checkout: Path) -> None:
    pytest.importorskip("torch")
    (block,) = blocks(README, "python")
    said = typed(f"{ACTIVATE}python - <<'END'\n{block}END\n", checkout)
    assert said.returncode == 0 and said.stdout.startswith("COMPLETED 0."), said.stdout


def test_the_yaml_of_the_readme_is_read(home: Path, tmp_path: Path) -> None:
    own, run, site = blocks(README, "yaml")
    for name, shown in (("programs/ddp", own), ("digits", run)):
        assert (ROOT / "examples" / f"{name}.yaml").read_text() == shown, "the page shows the example as it is"
    (tmp_path / "site.yaml").write_text(site)
    (tmp_path / "run.yaml").write_text(run)
    assert load(tmp_path / "run.yaml").run.train.epochs == 20
    assert load(tmp_path / "run.yaml", site=str(tmp_path / "site.yaml")).site.node.gpus == 4


def test_every_python_of_the_docs_compiles() -> None:
    for page in PAGES:
        for text in blocks(page, "python"):
            compile(textwrap.dedent(text), page, "exec")


@pytest.mark.parametrize("text", [text for page in PAGES for text in blocks(page, "yaml")])
def test_every_yaml_of_the_docs_is_read(text: str) -> None:
    keys = yaml.safe_load(text).keys()
    cls, required = RunSpec, {"name": "x", "site": "x"}
    if keys & {"base", "dockerfile"}:
        cls, required = ImageFile, {"name": "x"}
    elif keys & {"scheduler", "container", "umask"}:
        cls, required = Site, {"scheduler": "local", "launcher": "spawn"}
    missing = "".join(f"{key}: {value}\n" for key, value in required.items() if key not in keys)
    assert read(cls, missing + text, "docs")


ON_PROGRAMS = DOCS / "guides" / "programs.md"


@pytest.mark.parametrize("run", blocks(ON_PROGRAMS, "yaml"))
def test_the_runs_of_the_page_on_programs_can_be_submitted(run: str, home: Path, tmp_path: Path) -> None:
    programs = shutil.copytree(ROOT / "examples" / "programs", tmp_path / "examples" / "programs")
    (programs / "mpi_ring").touch(0o755)  # the page says how to compile it
    site = home / ".config" / "torusrun" / "sites" / "mpi.yaml"
    site.parent.mkdir(parents=True)
    (named,) = re.findall(r"`(\{scheduler: local, .*\})`", ON_PROGRAMS.read_text())
    site.write_text(named)
    path = tmp_path / "run.yaml"
    path.write_text(run)
    assert plan(path).run.command


def test_the_grids_of_the_placement_page_are_what_plan_finds(home: Path) -> None:
    page = (DOCS / "guides" / "placement.md").read_text()
    lines = re.findall(r"^\| [\d,]+ \| \d+(?:x\d+)* \| .*", page, re.MULTILINE)
    assert len(lines) == 3
    for line in lines:
        gpus, best, best_ms, sony, sony_ms, nodes, nodes_ms, bound_ms = line.strip("| ").replace(",", "").split(" | ")
        hosts = [f"g{number:04d}" for number in range(1, 865)]
        for grid, shape, took_ms in (("auto", best, best_ms), (sony, sony, sony_ms), (nodes, nodes, nodes_ms)):
            settings = ["account=x", f"nodes={int(gpus) // 4}", f"grid={grid}"]
            found = outlook(plan(ROOT / "examples" / "racks" / "run.yaml", site="abci-v", settings=settings), hosts)
            assert str(found.plan.grid) == shape, line
            assert f"{found.compared[0].all_reduce_s * 1e3:.2f}" == took_ms, line
            assert f"{found.compared[-1].all_reduce_s * 1e3:.2f}" == bound_ms, line


@pytest.mark.parametrize("page", ["spec", "recipes", "large_batches"])
def test_what_is_made_from_the_code_is_current(page: str) -> None:
    program = f"import make_{page}; print(make_{page}.text(), end='')"
    env = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'docs'}"}
    said = subprocess.run([sys.executable, "-c", program], env=env, text=True, capture_output=True, timeout=300)
    assert said.stdout == (DOCS / "reference" / f"{page.replace('_', '-')}.md").read_text(), (
        f"run `python docs/make_{page}.py`"
    )


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_links_lead_somewhere(page: Path) -> None:
    for target, anchor in re.findall(r"\]\((?!https?://)([^)#\s]*)#?([^)\s]*)\)", page.read_text()):
        there = (page.parent / target).resolve() if target else page
        assert there.exists(), f"{page.name} links to {target}, which is not there"
        assert not anchor or anchor in anchors(there), f"{page.name} links to {target}#{anchor}: no such heading"


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    prose = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.*)", prose, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_index_names_every_page() -> None:
    linked = {(DOCS / target).resolve() for target in re.findall(r"\]\(([^)#]+\.md)", (DOCS / "index.md").read_text())}
    missing = [str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md") if page not in linked]
    assert missing == ["index.md"], f"docs/index.md does not name {missing}"


def test_pages_that_the_code_names_are_there() -> None:
    folders = ("docs", "orchestrator", "training", "templates", "containers", "examples", "tests", "benchmarks")
    for path in [ROOT / "pyproject.toml", *(path for folder in folders for path in (ROOT / folder).rglob("*"))]:
        if path.suffix in (".py", ".md", ".yaml", ".j2", ".toml"):
            names = re.findall(r"\bdocs/[\w/-]+\.md", path.read_text())
            gone = [name for name in names if not (ROOT / name).exists()]
            assert not gone, f"{path.relative_to(ROOT)} names {gone}"


def test_the_walk_of_a_submit_takes_25_files() -> None:
    walk = (DOCS / "architecture.md").read_text().partition("## The walk of a submit\n")[2].partition("\n## ")[0]
    files = re.findall(r"^\| [\w ]*\| `([^`]+)` \|", walk, re.MULTILINE)
    assert 15 <= len(files) == len(set(files)) <= 25
    assert not [name for name in files if not (ROOT / name).exists()]


@pytest.mark.parametrize("image", [True, False])
def test_the_files_of_the_page_on_slurm_make_a_job(image: bool, home: Path, tmp_path: Path) -> None:
    site, run = (block.replace("/shared/me", str(tmp_path)) for block in blocks(DOCS / "start" / "slurm.md", "yaml"))
    (tmp_path / "cluster.yaml").write_text(site)
    (tmp_path / "run.yaml").write_text(run if image else re.sub(r"^image:.*\n", "", run, flags=re.MULTILINE))
    for name in ("train.py", "pytorch.sif"):
        (tmp_path / name).touch()
    planned = plan(tmp_path / "run.yaml")
    assert planned.ranks == 16 and "#SBATCH --nodes=4" in proposed(planned)[1]


def test_the_table_of_files_names_all_that_is_in_a_run_folder() -> None:
    table = "".join(re.findall(r"^\|.*\n", (DOCS / "reference" / "run-folder.md").read_text(), re.MULTILINE))
    listing = (*listed(RunFolder), *listed(Attempt))
    words = [word.removesuffix(".times") for held in listing for word in held.name.split()]
    names = {re.sub("/.*", "/", word) for word in words}
    assert not [name for name in names if not re.search(f"[`/]{re.escape(name)}[`N]", table)]
