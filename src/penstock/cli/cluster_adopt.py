"""`penstock cluster adopt`: turn a standalone broker into the first broker of a cluster, with its data."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.config_file import read_config_file
from penstock.cli.failures import ExitCode, Failure
from penstock.cli.options import ConfigOption, SetOption
from penstock.cluster.adoption import AdoptionResult
from penstock.cluster.adoption import adopt as adopt_store
from penstock.cluster.embedded import EmbeddedStore
from penstock.config import ZOOKEEPER_DIGEST, ZOOKEEPER_SESSION_TIMEOUT_MS, BrokerConfig
from penstock.config.loading import load_broker_config, parse_assignments
from penstock.errors import PenstockError
from penstock.extras import how_to_install
from penstock.server.environment import STORE_FILE
from penstock.storage.disk import RealDisk
from penstock.threads import ThreadPools, Threads

SET_ASIDE = f"{STORE_FILE}.adopted"


def add_to(app: typer.Typer) -> None:
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
    """Make a standalone broker the first broker of a cluster.

    Topics, ids, settings, committed offsets and data stay as they are.
    """
    loaded = load_broker_config(
        file=read_config_file(config), environment=os.environ, command_line=parse_assignments(settings or [])
    )
    disk = _lock(data_dir)
    try:
        adopted = asyncio.run(_adopt(data_dir, zookeeper, loaded.config))
    except PenstockError as error:
        raise Failure(str(error)) from None
    disk.rename(STORE_FILE, SET_ASIDE)
    disk.remove(f"{STORE_FILE}-journal")
    disk.sync_dir("")
    typer.echo(
        f"cluster {adopted.cluster_id} is in ZooKeeper now: {adopted.topics} topics, {adopted.partitions} partitions"
    )
    typer.echo(
        f"start its first broker with `penstock broker --data-dir {data_dir} --zookeeper {zookeeper} ...`"
    )


def _lock(data_dir: Path) -> RealDisk:
    """Lock the data directory of a standalone broker; Failure if the broker runs or has no store of its own."""
    if not (data_dir / STORE_FILE).exists():
        was_adopted = (data_dir / SET_ASIDE).exists()
        raise Failure(
            f"{data_dir} {'has been adopted already' if was_adopted else 'is not that of a broker that is alone'}",
            code=ExitCode.USAGE,
        )
    disk = RealDisk(str(data_dir))
    if not disk.lock():
        raise Failure(f"a broker runs in {data_dir}", "Stop it first.")
    return disk


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
    except ImportError:
        raise Failure(
            "a cluster needs kazoo, which is not installed", f"Install it: {how_to_install('cluster')}"
        ) from None
    target = ZooKeeperStore(
        zookeeper, threads, config[ZOOKEEPER_SESSION_TIMEOUT_MS], config[ZOOKEEPER_DIGEST]
    )
    await target.start()
    try:
        return await adopt_store(source, target)
    finally:
        await target.close()
