"""`penstock cluster adopt`: turn a standalone broker into the first broker of a cluster, with its data."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.broker_config import load_config
from penstock.cli.failures import ExitCode, Failure
from penstock.cli.options import ConfigOption, SetOption
from penstock.cli.processes.machine_directory import MachineDirectory
from penstock.cluster.adoption import AdoptionResult
from penstock.cluster.adoption import adopt as adopt_store
from penstock.cluster.embedded import EmbeddedStore
from penstock.config import ZOOKEEPER_SESSION_TIMEOUT_MS, BrokerConfig
from penstock.errors import PenstockError
from penstock.extras import how_to_install
from penstock.security.tls_context import read_subject
from penstock.server.environment import STORE_FILE
from penstock.storage.disk import RealDisk
from penstock.threads import ThreadPools, Threads

SET_ASIDE = f"{STORE_FILE}.adopted"


def register(app: typer.Typer) -> None:
    app.command()(adopt)


def adopt(
    data_dir: Annotated[Path, typer.Option(metavar="DIR", help="The data directory of the stopped broker.")],
    zookeeper: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT[/CHROOT]", help="The ZooKeeper of the new cluster; its chroot must be empty."
        ),
    ],
    config: ConfigOption = None,
    settings: SetOption = None,
) -> None:
    """Make a standalone broker the first broker of a cluster. All brokers of a machine with several processes join.

    Topics, ids, settings, committed offsets and data stay as they are.
    """
    loaded = load_config(config, settings or [])
    disk = _lock(data_dir)
    processes = _lock_processes(data_dir)
    try:
        adopted = asyncio.run(_adopt(data_dir, zookeeper, loaded.config))
    except PenstockError as error:
        raise Failure(
            str(error), "The data directory is unchanged. Remove the cause and run the command again."
        ) from None
    disk.rename(STORE_FILE, SET_ASIDE)
    disk.remove(f"{STORE_FILE}-journal")
    disk.sync_dir("")
    typer.echo(
        f"cluster {adopted.cluster_id} is in ZooKeeper: {adopted.topics} topics, {adopted.partitions} partitions"
    )
    option = f" --processes {processes}" if processes > 1 else ""
    typer.echo(
        f"start its first broker with `penstock broker --data-dir {data_dir}{option} --zookeeper {zookeeper} ...`"
    )


def _lock(data_dir: Path) -> RealDisk:
    """Lock the data directory of a standalone broker. Raises Failure if the broker runs, or if its directory contains
    no metadata store.
    """
    if not (data_dir / STORE_FILE).exists():
        raise _not_standalone(data_dir)
    disk = RealDisk(str(data_dir))
    if not disk.lock():
        raise Failure(f"a broker is running in {data_dir}", "Stop the broker, then run the command again.")
    return disk


def _lock_processes(data_dir: Path) -> int:
    """Lock the brokers of a machine with several processes until this command ends, and return their number."""
    directory = MachineDirectory(str(data_dir))
    if not directory.is_in_use:
        return 1
    directory.lock()
    machine = directory.load()
    return 1 if machine is None else len(machine.brokers)


def _not_standalone(data_dir: Path) -> Failure:
    if (data_dir / SET_ASIDE).exists():
        return Failure(
            f"the broker in {data_dir} is already part of a cluster",
            "Start it with `penstock broker --zookeeper HOST:PORT`.",
            code=ExitCode.USAGE,
        )
    return Failure(
        f"{data_dir} is not the data directory of a standalone broker: it has no {STORE_FILE}",
        "Name the --data-dir of a stopped broker that runs without ZooKeeper.",
        code=ExitCode.USAGE,
    )


async def _adopt(data_dir: Path, zookeeper: str, config: BrokerConfig) -> AdoptionResult:
    threads = ThreadPools()
    source = EmbeddedStore(str(data_dir / STORE_FILE), threads)
    await source.start()
    try:
        return await _adopt_to(source, zookeeper, config, threads)
    finally:
        await source.close()
        threads.close()


async def _adopt_to(
    source: EmbeddedStore, zookeeper: str, config: BrokerConfig, threads: Threads
) -> AdoptionResult:
    try:
        from penstock.cluster.zookeeper import ZooKeeperStore
        from penstock.cluster.zookeeper_security import zookeeper_security
    except ImportError:
        raise Failure(
            "a cluster needs kazoo, which is not installed", f"Install it: {how_to_install('cluster')}"
        ) from None
    security = zookeeper_security(config, read_subject)
    target = ZooKeeperStore(zookeeper, threads, config[ZOOKEEPER_SESSION_TIMEOUT_MS], security)
    await target.start()
    try:
        return await adopt_store(source, target)
    finally:
        await target.close()
