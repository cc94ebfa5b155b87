"""Start torusrun's own programs by where they lie, whatever the folders of the user are called.

`python FOLDER/torusrun MODULE ARGUMENTS...` runs a module as `python -m` does, and `-c PROGRAM` in place of MODULE a
program as `python -c` does, but without the working directory on the path. `python -m torusrun VERB ...` is
`torusrun VERB ...`.
"""

import os
import sys


def _start(package: str) -> None:
    """Run the module or the program that the arguments name, with this package as `torusrun`."""
    own = os.path.dirname(package)
    path = [entry for entry in sys.path[1:] if entry]  # the first is the folder of this file
    sys.path[:] = [*path, *({own} - {*path})]  # last: for processes that it starts
    import importlib.util
    import runpy

    spec = importlib.util.spec_from_file_location("torusrun", os.path.join(package, "__init__.py"))
    assert spec and spec.loader
    sys.modules["torusrun"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules["torusrun"])
    if sys.argv[1] == "-c":
        program = sys.argv.pop(2)
        del sys.argv[0]
        exec(program, {"__name__": "__main__"})
    else:
        runpy.run_module(sys.argv.pop(1), None, "__main__", True)


if __name__ == "__main__":
    if __package__:
        import torusrun.orchestrator.__main__  # noqa: F401  # it takes the working directory off the path first
    else:
        _start(os.path.dirname(os.path.abspath(__file__)))
