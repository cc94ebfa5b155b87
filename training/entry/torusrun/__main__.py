"""Start torusrun's own programs by where they lie, whatever the folders of the user are called.

`python FOLDER/torusrun MODULE ARGUMENTS...` runs a module as `python -m` does, but without the working directory on the
path; `python -m torusrun VERB ...` is `torusrun VERB ...`.
"""

import importlib.util
import runpy
import sys
from pathlib import Path


def _start(package: Path) -> None:
    """Run the module that the first argument names, with this package as `torusrun`."""
    path = [entry for entry in sys.path[1:] if entry]  # the first is the folder of this file
    sys.path[:] = [*path, *({str(package.parent)} - {*path})]  # last: for processes that this one starts
    spec = importlib.util.spec_from_file_location("torusrun", package / "__init__.py")
    assert spec and spec.loader
    sys.modules["torusrun"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules["torusrun"])
    runpy.run_module(sys.argv.pop(1), None, "__main__", True)


if __name__ == "__main__":
    if __package__:
        runpy.run_module("torusrun.orchestrator", None, "__main__", True)
    else:
        _start(Path(__file__).absolute().parent)
