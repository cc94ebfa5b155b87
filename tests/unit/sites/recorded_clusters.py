"""What schedulers' commands printed when they were recorded on real clusters."""

from collections.abc import Callable, Sequence
from pathlib import Path

from torusrun.orchestrator.base.errors import SiteError

RECORDED = Path(__file__).parents[1] / "recorded"
Ask = Callable[[Sequence[str]], str]


def recorded(folder: str, files: dict[str, str]) -> Ask:
    """What the commands printed; a command that was not recorded fails."""

    def ask(argv: Sequence[str]) -> str:
        name = files.get(" ".join(argv))
        if name is None:
            raise SiteError(f"{argv[0]}: not recorded")
        return (RECORDED / folder / name).read_text()

    return ask


SLURM_WITHOUT_ACCOUNTS = {
    "sinfo --version": "version.txt",
    "scontrol show partition --oneliner": "partitions.txt",
    "sinfo --noheader --exact --format=%P|%D|%c|%m|%G": "sinfo.txt",
    "sinfo --noheader --Node --format=%P|%N": "nodes.txt",
}
SLURM = recorded(
    "slurm/cluster",
    {
        **SLURM_WITHOUT_ACCOUNTS,
        "scontrol show config": "config.txt",
        "scontrol show topology": "topology.txt",
        "sacctmgr --noheader --parsable2 show associations format=Account user=labuser": "accounts.txt",
        "sacctmgr --noheader --parsable2 show user format=DefaultAccount labuser": "default_account.txt",
    },
)
GRIDENGINE_FILES = {
    "qstat -help": "version.txt",
    "qconf -sq *": "queues.txt",
    "qconf -spl": "environments.txt",
    "qconf -sp mpi": "environment_mpi.txt",
    "qconf -sp rt_F": "environment_rt_F.txt",
    "qconf -sp single": "environment_single.txt",
    "qhost -xml": "hosts.txt",
    "qselect": "instances.txt",
    "qselect -q all.q": "instances.txt",
    "qhost -F gpu": "gpus.txt",
    "qconf -sc": "resources.txt",
    "qconf -sprjl": "projects.txt",
    "qconf -shgrpl": "groups.txt",
    "qconf -sconf": "configuration.txt",
}
GRIDENGINE = recorded("gridengine/cluster", GRIDENGINE_FILES)
# A job uses a GPU of node1 and node2 each.
GRIDENGINE_WITH_GPUS = recorded("gridengine/cluster", {**GRIDENGINE_FILES, "qhost -F gpu": "gpus_in_use.txt"})
PBS_FILES = {"qstat -Q -f": "queues.txt", "qstat -B -f": "server.txt", "pbsnodes -av": "nodes.txt"}
PBS = recorded("openpbs/cluster", PBS_FILES)
PBS_WITH_ROUTES = recorded("openpbs/routes", PBS_FILES)
PBS_WITH_LIMITS = recorded("openpbs/limits", PBS_FILES)
PBS_WITH_COUNTS = recorded("openpbs/counts", PBS_FILES)
PBS_WITH_RESERVATIONS = recorded("openpbs/reservations", {**PBS_FILES, "pbs_rstat -f": "reservations.txt"})
LOCAL = recorded("local", {"cat /proc/meminfo": "meminfo.txt", "nproc": "nproc.txt"})
