"""Open MPI's mpirun, from 4.0 on; from 5.0 on it is PRRTE's prterun with other options.

Its messages: help-errmgr-base.txt and help-orterun.txt; seen from 4.1.4 and 5.0.11, a lost host from 4.1.4 only.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from torusrun.orchestrator.schedulers.launchers.launcher import Launch, Launcher

LOST = re.compile(
    r"(?:ORTE|PRTE) has lost communication with a remote daemon\..*?Remote daemon: *\S+ on node (\S+)", re.DOTALL
)
PRRTE = 5  # the first version that is built on PRRTE


class OpenMPI(Launcher):
    """mpirun of Open MPI; `major` is the first number of its version."""

    numbers = ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK")
    kills = re.compile(r"noticed that process rank (\d+) with PID \d+ on (?:node )?\S+\s+exited\s+on\s+signal\s+(\d+)")

    def __init__(self, program: str = "mpirun", major: int = 4) -> None:
        super().__init__(program)
        self.major = major

    @classmethod
    def recognized(cls, program: str, version: str) -> OpenMPI | None:
        """The launcher, if `version` is Open MPI's version text, else None."""
        found = re.search(r"\((?:Open MPI|OpenRTE)\) (\d+)\.", version)
        return cls(program, int(found[1])) if found else None

    def command(self, launch: Launch) -> list[str]:
        # The bare name: mpirun repeats this word, unquoted, in its commands for the shells of the other nodes.
        passed = [word for name in launch.passed for word in ("-x", name)]
        shell = remote_words(launch.remote_shell, self.major) if launch.remote_shell else []
        return [self.program, "-np", str(launch.ranks), *self._ordered(launch.hostfile.name), *passed, *shell]

    def _ordered(self, hostfile: str) -> list[str]:
        """The options for each rank on the host of its line. A host file alone sets no order, and a rank file binds.

        A site may count a whole node as one slot (ABCI's rt_F does), so hosts take more ranks than they have slots.
        """
        if self.major >= PRRTE:
            mapped = ["--map-by", f"seq:file={hostfile}:OVERSUBSCRIBE"]
        else:
            mapped = ["--oversubscribe", "--map-by", "seq"]
        return ["--hostfile", hostfile, *mapped, "--bind-to", "none"]

    @classmethod
    def lost(cls, text: str) -> dict[str, str]:
        return {found[1]: found[0].splitlines()[0].strip() for found in LOST.finditer(text)}


def remote_words(shell: Sequence[str], major: int = 4) -> list[str]:
    """The options that make mpirun start its daemons by `shell`.

    If that is the scheduler's own, only the first host can use it. So the first host starts all daemons, and signals
    and output go to each directly: Open MPI 4.1 itself says that its default routes fail otherwise. A daemon must stay
    in the session that it was started in: PBS ends the rest of a task whose first process has ended, sometimes before
    the daemon is ready.
    """
    agent = " ".join(shell)
    if major >= PRRTE:
        words, direct = ["--prtemca", "plm_ssh_agent", agent], ["--prtemca", "plm_ssh_no_tree_spawn", "1"]
    else:
        words = ["--mca", "plm_rsh_agent", agent]
        direct = ["--mca", "plm_rsh_no_tree_spawn", "1", "--mca", "routed", "direct"]
    return words if agent == "ssh" else [*words, *direct, "--leave-session-attached"]
