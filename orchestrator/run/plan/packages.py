"""Checks at the submission of a training whether the Python that will run it has PyTorch, if this machine knows it."""

from __future__ import annotations

import sys
from importlib.util import find_spec

from torusrun.orchestrator import schedulers
from torusrun.orchestrator.base import process
from torusrun.orchestrator.base.errors import SiteError, UserError
from torusrun.orchestrator.run.plan.plan import Plan

ASKING_S = 10.0  # without an answer the submission goes on
PACKAGES = {"torch": "torch", "numpy": "numpy", "sklearn": "scikit-learn", "PIL": "pillow"}  # by what is imported
OF_DATA = {"digits": ["sklearn"], "imagefolder": ["PIL"], "tar-shards": ["PIL"]}
PROBE = "import sys, importlib.util as u; print('lacks', *(m for m in sys.argv[1:] if u.find_spec(m) is None))"


def check(plan: Plan) -> None:
    """Raise UserError if the training of a plan certainly lacks a package of Python."""
    run, site = plan.run, plan.site
    elsewhere = run.image or site.host or not schedulers.get(site.scheduler).traits.one_machine
    brings = run.setup or site.setup or site.software.given or "PYTHONPATH" in plan.environment
    if run.command or elsewhere or brings:
        return
    if missing := _missing(site.interpreter, ["torch", "numpy", *OF_DATA.get(run.train.data.name, [])]):
        packages = " ".join(PACKAGES[module] for module in missing)
        raise UserError(
            f"'train' needs {' and '.join(packages.split())}, which {site.interpreter} does not have: `pip install "
            f"{packages}` there, or name another Python as 'python' of the site"
        )


def advice(text: str) -> str:
    """What to install, if a text has Python's error about a missing module; '' otherwise."""
    name = text.partition("No module named '")[2].partition("'")[0].partition(".")[0]
    if not name:
        return ""
    package = PACKAGES.get(name, name)
    what = f"the package that has it ({package}?)" if name not in PACKAGES else package
    return f"install {what} for the Python of the ranks, or in their image: `python -m pip install {package}`"


def _missing(python: str, modules: list[str]) -> list[str]:
    """Those of the modules that a Python does not have; none if it cannot be run here."""
    if python == sys.executable:
        return [module for module in modules if find_spec(module) is None]
    try:
        done = process.run(process.program(python, PROBE, *modules), timeout_s=ASKING_S)
    except SiteError:
        return []
    line = next((line for line in done.stdout.splitlines() if line.startswith("lacks")), "")
    return [word for word in line.split()[1:] if word in modules]
