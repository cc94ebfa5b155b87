"""A real Apptainer on this machine, for the ordinary user: on the login side and inside the lab's nodes.

    apptainer = ApptainerLab()
    apptainer.install()
    slurm_lab.add_to_path(apptainer.path)
    slurm_lab.run_as_user(["srun", "apptainer", "exec", str(apptainer.tiny), "hostname"])

Nothing runs in the background. All files are below /var/cache/torusrun-lab, where the next session finds them.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

from tests.lab.cluster import LabError
from tests.lab.cluster.cache import FOLDER, cached
from tests.lab.cluster.processes import run
from tests.lab.slurm import SlurmLab

from . import bases, images, packages, program


class ApptainerLab:
    def __init__(self, cache: Path = FOLDER) -> None:
        self.cache = cache
        self._program: Path | None = None

    def install(self) -> None:
        """Install it; this takes seconds once its packages are there. Raises LabError if this machine cannot run it."""
        if reason := packages.why_not_here():
            raise LabError(reason)
        packages.install()
        self._program = cached("apptainer", _text(program.__file__), program.make, self.cache)

    @property
    def program(self) -> Path:
        if self._program is None:
            raise LabError("no Apptainer yet: install() first")
        return self._program

    @property
    def path(self) -> Path:
        """The folder with `apptainer`, `singularity` and `run-singularity`, for the front of PATH."""
        return self.program / "bin"

    @cached_property
    def version(self) -> str:
        """The version, such as "1.4.5"."""
        return run([str(self.path / "apptainer"), "--version"]).stdout.split()[-1]

    @property
    def tiny(self) -> Path:
        """A root folder with busybox only."""
        return self.program / "tiny"

    @cached_property
    def debian(self) -> Path:
        """A root folder of this machine's release with Python, pip and Open MPI."""
        return cached("debian", _text(bases.__file__), bases.make_debian, self.cache)

    @cached_property
    def wheelhouse(self) -> Path:
        """A folder of wheels for the Python in `debian`: PyTorch, scikit-learn, Pillow and their dependencies."""
        python = bases.python_version(self.debian)
        made_from = " ".join([python, *images.requirements()])
        return cached("wheels", made_from, lambda entry: images.make_wheelhouse(entry, python), self.cache)

    def torch_image(self, lab: SlurmLab) -> Path:
        """A SIF with all of these, built by the lab's user; the lab must be up and have `path` in its PATH."""
        made_from = " ".join([_text(images.DEFINITION), *map(str, [images.COMPRESSION, self.debian, self.wheelhouse])])
        entry = cached(
            "torch", made_from, lambda entry: images.make_torch(entry, lab, self.debian, self.wheelhouse), self.cache
        )
        return entry / "torch.sif"


def _text(path: str | Path) -> str:
    return Path(path).read_text()
