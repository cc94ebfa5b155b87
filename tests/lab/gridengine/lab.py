"""A real Grid Engine on the labs' cluster: qmaster on the controller, an execution daemon on every node.

It accepts both requests for nodes: `-pe mpi SLOTS` (two slots a host), and ABCI's `-g GROUP -l rt_F=NODES`, which a
server-side JSV and the lab's own qsub on the user's PATH translate.
"""

from __future__ import annotations

from ..cluster import Cluster, Lab
from ..cluster.folder import give
from ..cluster.network import listens
from ..cluster.processes import Daemon, wait_until
from ..cluster.settings import CONTROLLER_ADDRESS
from . import config, packages

BOOT = "exec env {env} {sge}/bin/lx-amd64/sge_execd\n"
RACKS = {"@racka": "node1 node3", "@rackb": "node2 node4"}
PER_HOST = {"mpi": "2", "single": "1", "rt_F": "1"}


class GridEngineLab(Lab):
    def __init__(self, cluster: Cluster) -> None:
        self.sge = cluster.settings.root / "sge"
        env = {
            "SGE_ROOT": str(self.sge),
            "SGE_CELL": "default",
            "SGE_QMASTER_PORT": str(config.QMASTER_PORT),
            "SGE_EXECD_PORT": str(config.EXECD_PORT),
        }
        super().__init__(cluster, env)
        binaries = f"{self.sge}/bin/{config.ARCH}:{self.sge}/utilbin/{config.ARCH}"
        self.env["PATH"] = f"{binaries}:{self.env['PATH']}"
        self.user_env["PATH"] = f"{self.sge}/lab:{binaries}:{self.user_env['PATH']}"
        self.server = Daemon(
            "sge_qmaster",
            [f"{self.sge}/bin/{config.ARCH}/sge_qmaster"],
            self.settings.log("sge_qmaster"),
            {**self.env, "SGE_ND": "true"},
            lambda: listens(CONTROLLER_ADDRESS, config.QMASTER_PORT),
        )
        self.site_file = self.home / "gridengine.yaml"

    def start(self) -> None:
        unpacked = packages.unpacked()
        packages.show_plugins(unpacked)
        self.cluster.at_the_end(packages.hide_plugins)
        self.cluster.at_the_end(self.server.stop)
        config.make_root(self.settings, unpacked, self.sge)
        for name in ("gridengine.yaml", "abci.yaml"):
            give(self.settings, name, config.rendered(name, self.settings, self.sge))
        give(self.settings, ".config/torusrun/sites/gridengine-lab.yaml", self.site_file.read_text())
        self._spool()
        self.server.start()
        for option, host in [("-ah", node) for node in self.nodes] + [("-as", self.settings.controller)]:
            self.admin(["qconf", option, host])
        env = " ".join(f"{name}={self.env[name]}" for name in self.env if name.startswith("SGE_"))
        self.cluster.boots("gridengine", BOOT.format(env=f"{env} SGE_ND=true", sge=self.sge))
        wait_until("all hosts to report", lambda: all(map(self._reports, self.nodes)), 120, self.server.log)
        self._configure()
        for node in self.nodes:
            self.wait_in_service(node, 120)

    def _spool(self) -> None:
        common = f"{self.sge}/default/common;{self.sge}/spool/qmaster"
        self.admin(["spoolinit", "classic", "libspoolc", common, "init"])
        self.admin(["spooldefaults", "configuration", f"{self.sge}/configuration"])
        self.admin(["spooldefaults", "complexes", f"{self.sge}/util/resources/centry"])
        self.admin(["spooldefaults", "usersets", f"{self.sge}/util/resources/usersets"])
        self.admin(["spooldefaults", "managers", "root"])

    def _configure(self) -> None:
        complexes = self.admin(["qconf", "-sc"]).stdout
        self._tell("-Mc", f"{complexes}rt_F rt_F INT <= YES YES 0 0\n")
        for name, per_host in PER_HOST.items():
            self._tell("-Ap", config.rendered("pe", self.settings, self.sge, name=name, per_host=per_host))
        for name, hosts in RACKS.items():
            self._tell("-Ahgrp", config.rendered("rack", self.settings, self.sge, name=name, hosts=hosts))
        self._tell("-Aprj", config.rendered("project", self.settings, self.sge))
        self._tell("-Aq", config.rendered("queue", self.settings, self.sge))
        soon = {"schedule_interval": "0:0:1", "flush_submit_sec": "1", "flush_finish_sec": "1"}
        lines = [line.split(maxsplit=1) for line in self.admin(["qconf", "-ssconf"]).stdout.splitlines()]
        self._tell("-Msconf", "".join(f"{key} {soon.get(key, value)}\n" for key, value in lines))

    def _tell(self, option: str, text: str) -> None:
        """Pass `text` to qconf in a file, because qconf reads only files."""
        path = self.sge / "lab" / "told"
        path.write_text(text)
        self.admin(["qconf", option, str(path)])

    def _reports(self, node: str) -> bool:
        said = self.admin(["qhost", "-h", node], check=False)
        words = said.stdout.splitlines()[-1].split() if said.returncode == 0 else []
        return len(words) > 6 and words[0] == node and words[6] != "-"

    def wait_in_service(self, node: str, timeout_s: float) -> None:
        wait_until(f"{node} in service", lambda: self._serves(node), timeout_s, self.server.log)

    def _serves(self, node: str) -> bool:
        said = self.admin(["qstat", "-f", "-q", f"all.q@{node}"], check=False)
        rows = [line.split() for line in said.stdout.splitlines() if line.startswith("all.q@")]
        return bool(rows) and len(rows[0]) == 5 and rows[0][3] != "-NA-"
