"""A real Slurm on the labs' cluster: munge, a database, slurmdbd, slurmctld, a slurmd on every node.

with Cluster() as cluster:
    lab = SlurmLab(cluster)
    lab.start()
    print(lab.run_as_user(["srun", "-N4", "hostname"]).stdout)
"""

from __future__ import annotations

from ..cluster import Cluster, Lab
from ..cluster.folder import give
from ..cluster.processes import wait_until
from . import cgroups, config, daemons, packages, pyxis

IN_SERVICE = ("idle", "mixed", "allocated", "completing")
BOOT = "PATH={path}$PATH SLURM_CONF={conf} exec slurmd -D -N $1\n"


class SlurmLab(Lab):
    def __init__(self, cluster: Cluster) -> None:
        self.conf = cluster.settings.etc / "slurm.conf"
        super().__init__(cluster, {"SLURM_CONF": str(self.conf)})
        self.has_cgroups = cgroups.usable()
        make = (daemons.munged, daemons.mariadbd, daemons.slurmdbd, daemons.slurmctld)
        self._munged, self._mariadbd, self._slurmdbd, self.server = (m(self.settings, self.env) for m in make)
        self.site_file = self.home / "site.yaml"

    def start(self) -> None:
        packages.install()
        self.cluster.at_the_end(self._leave)
        cgroups.remove(self.nodes)
        config.make_folders(self.settings)
        config.write(self.settings, self.has_cgroups)
        give(self.settings, "site.yaml", config.site(self.settings))
        self._munged.start()
        daemons.make_database(self.settings, self.env)
        self._mariadbd.start()
        self._slurmdbd.start()
        daemons.open_account(self.settings, self.env)
        self.server.start()
        enroot = pyxis.folder()
        self.cluster.boots("slurm", BOOT.format(conf=self.conf, path=f"{enroot}/bin:" if enroot else ""))
        idle = {"idle"}
        wait_until("all nodes idle", lambda: set(self.node_states().values()) == idle, 120, self.server.log)

    def _leave(self) -> None:
        cgroups.remove(self.nodes)
        for daemon in (self._munged, self._mariadbd, self._slurmdbd, self.server):
            daemon.stop()

    def node_states(self) -> dict[str, str]:
        """Node name -> state in sinfo's long form, such as "idle", "down*"."""
        lines = self.admin(["sinfo", "-h", "-N", "-p", "main", "-o", "%N %T"]).stdout.splitlines()
        return dict(line.split() for line in lines)

    def give_back_drained(self) -> list[str]:
        """Return nodes to service that Slurm drained by itself (a step did not end, ...); returns the reasons."""
        lines = self.admin(["sinfo", "-h", "-N", "-p", "main", "-t", "drain", "-o", "%N: %E"], check=False).stdout
        drained = lines.splitlines()
        for line in drained:
            self.admin(["scontrol", "update", f"nodename={line.partition(':')[0]}", "state=resume"], check=False)
        return drained

    def start_node(self, name: str, timeout_s: float = 180) -> None:
        cgroups.remove([name])
        super().start_node(name, timeout_s)

    def wait_in_service(self, node: str, timeout_s: float) -> None:
        wait_until(f"{node} in service", lambda: self._in_service(node), timeout_s, self.server.log)

    def _in_service(self, name: str) -> bool:
        state = self.node_states()[name]
        if state.startswith(("down", "drain")) and not state.endswith("*"):
            self.admin(["scontrol", "update", f"nodename={name}", "state=resume"], check=False)
        return state in IN_SERVICE

    def stop_slurmdbd(self) -> None:
        self._slurmdbd.stop()

    def start_slurmdbd(self) -> None:
        self._slurmdbd.start()
