"""torusrun for Spack: a copy of this folder as `packages/py-torusrun` of a repository of your own.

`spack dev-build py-torusrun@0.1.0` builds a checkout. For a release, add its `pypi` and a `version` with the sha256.
"""

from spack.package import *


class PyTorusrun(PythonPackage):
    """One YAML becomes a multi-node PyTorch training on Slurm, PBS, Grid Engine or this machine."""

    license("Apache-2.0")

    version("0.1.0")

    variant("train", default=False, description="The training of torusrun itself: PyTorch, scikit-learn, Pillow")

    depends_on("python@3.10:", type=("build", "run"))
    depends_on("py-hatchling@1.24:", type="build")
    depends_on("py-pyyaml@6.0:", type=("build", "run"))
    depends_on("py-jinja2@3.1:", type=("build", "run"))
    depends_on("py-rich@13.0:", type=("build", "run"))
    depends_on("py-submitit@1.5:", type=("build", "run"))
    depends_on("py-spython@0.3.14:", type=("build", "run"))
    depends_on("py-packaging@22.0:", type=("build", "run"))
    depends_on("py-fabric@3.2:", type=("build", "run"))

    with when("+train"):
        depends_on("py-torch@2.6:", type=("build", "run"))
        depends_on("py-scikit-learn@1.3:", type=("build", "run"))
        depends_on("py-numpy@1.22:", type=("build", "run"))
        depends_on("py-pillow@10.0:", type=("build", "run"))
