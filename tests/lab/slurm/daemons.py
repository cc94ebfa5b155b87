"""The four daemons beside the nodes, in the order of their start: munged, mariadbd, slurmdbd, slurmctld."""

from __future__ import annotations

from pathlib import Path

from ..cluster.network import listens
from ..cluster.processes import Daemon, run
from ..cluster.settings import CONTROLLER_ADDRESS, Settings
from .config import CONTROLLER_PORT, DATABASE_PORT

SMALL_DATABASE = [
    "--no-defaults",
    "--user=root",
    "--skip-log-bin",
    "--innodb-buffer-pool-size=32M",
    "--innodb-log-file-size=8M",
    "--innodb-flush-log-at-trx-commit=0",
    "--innodb-doublewrite=0",
]


def munged(settings: Settings, env: dict[str, str]) -> Daemon:
    folder = settings.root / "munge"
    argv = [
        "munged",
        "--foreground",
        f"--key-file={folder}/key",
        f"--socket={folder}/socket",
        f"--pid-file={folder}/pid",
        f"--log-file={folder}/log",
        f"--seed-file={folder}/seed",
    ]
    return Daemon("munged", argv, settings.log("munged"), env, (folder / "socket").exists)


def mariadbd(settings: Settings, env: dict[str, str]) -> Daemon:
    folder = settings.root / "db"
    argv = [
        "mariadbd",
        *SMALL_DATABASE,
        f"--datadir={folder}/data",
        f"--socket={_socket(settings)}",
        f"--pid-file={folder}/pid",
        "--skip-networking",
    ]
    return Daemon("mariadbd", argv, settings.log("mariadbd"), env, _socket(settings).exists)


def make_database(settings: Settings, env: dict[str, str]) -> None:
    run(
        [
            "mariadb-install-db",
            *SMALL_DATABASE,
            f"--datadir={settings.root}/db/data",
            "--skip-test-db",
            "--skip-name-resolve",
            "--auth-root-authentication-method=socket",
        ],
        timeout_s=60,
        env=env,
    )


def slurmdbd(settings: Settings, env: dict[str, str]) -> Daemon:
    return Daemon(
        "slurmdbd",
        ["slurmdbd", "-D"],
        settings.log("slurmdbd"),
        {**env, "MYSQL_UNIX_PORT": str(_socket(settings))},
        lambda: listens(CONTROLLER_ADDRESS, DATABASE_PORT),
    )


def slurmctld(settings: Settings, env: dict[str, str]) -> Daemon:
    return Daemon(
        "slurmctld",
        ["slurmctld", "-D"],
        settings.log("slurmctld"),
        env,
        lambda: listens(CONTROLLER_ADDRESS, CONTROLLER_PORT),
    )


def open_account(settings: Settings, env: dict[str, str]) -> None:
    """Register the cluster: without that slurmctld ends at its first start."""
    run(
        ["sacctmgr", "--immediate"],
        env=env,
        stdin=(
            "add cluster torus\nadd account lab cluster=torus\n"
            f"add user {settings.user} account=lab cluster=torus\nquit\n"
        ),
    )


def _socket(settings: Settings) -> Path:
    return settings.root / "db" / "socket"
