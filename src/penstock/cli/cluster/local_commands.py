"""`penstock cluster up|down|start|kill`: run a cluster on this machine."""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli.cluster.local_cluster import ClusterFile, Form, LocalCluster
from penstock.cli.cluster.local_plan import plan_cluster, with_settings
from penstock.cli.cluster.options import DataDirOption, NodeArgument
from penstock.cli.cluster.pipeline_supervisor import (
    SupervisorProcess,
    log_path,
    start_detached,
    stop_detached,
)
from penstock.cli.cluster.start import ClusterStart, where
from penstock.cli.failures import ExitCode, Failure
from penstock.cli.options import SetOption
from penstock.cli.processes.process_id import STOP_SECONDS, end_all
from penstock.cli.secure_cluster import secure_cluster, secure_zookeeper
from penstock.config.loading import parse_assignments

DEFAULT = Form()
POLL_SECONDS = 0.5
_FORM_OPTIONS = ("brokers", "base_port", "http_base_port", "zookeeper", "secure", "insecure")
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def register(app: typer.Typer) -> None:
    for command in (up, down, start, kill):
        app.command()(command)


BrokersOption = Annotated[
    int | None, typer.Option(min=1, help=f"Number of brokers; {DEFAULT.brokers} by default.")
]
BasePortOption = Annotated[
    int | None,
    typer.Option(
        min=2, help=f"Port of the first broker, followed by the others; {DEFAULT.base_port} by default."
    ),
]
HttpBasePortOption = Annotated[
    int | None,
    typer.Option(
        min=1,
        help=f"HTTP port of the first broker, followed by the others; {DEFAULT.http_base_port} by default.",
    ),
]
ZookeeperOption = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT[/CHROOT]", help="An existing ZooKeeper; by default one is started."),
]
SecureOption = Annotated[
    bool, typer.Option("--secure", help="Encrypt and authenticate: make certificates and an administrator.")
]
InsecureOption = Annotated[
    bool, typer.Option("--insecure", help="Accept that other machines need no authentication.")
]
DetachOption = Annotated[
    bool, typer.Option("--detach", help="Return once all brokers serve, and leave them running.")
]
PipelinesOption = Annotated[
    bool, typer.Option("--pipelines", help="Also run declared pipelines, as `penstock pipeline serve` does.")
]


def up(
    data_dir: DataDirOption,
    brokers: BrokersOption = None,
    base_port: BasePortOption = None,
    http_base_port: HttpBasePortOption = None,
    zookeeper: ZookeeperOption = None,
    secure: SecureOption = False,
    insecure: InsecureOption = False,
    settings: SetOption = None,
    detach: DetachOption = False,
    pipelines: PipelinesOption = False,
) -> None:
    """Start ZooKeeper and brokers on this machine: a new cluster, or the existing one in the directory."""
    began = time.monotonic()
    options = (brokers, base_port, http_base_port, zookeeper, secure or None, insecure or None)
    given = {name: value for name, value in zip(_FORM_OPTIONS, options, strict=True) if value is not None}
    for number in STOP_SIGNALS:
        signal.signal(number, signal.default_int_handler)
    file = ClusterFile(data_dir)
    start = ClusterStart(file)
    cluster = start.run(lambda known: _planned(data_dir, known, given, parse_assignments(settings or [])))
    if detach:
        _announce(cluster, began, f"`penstock cluster down --data-dir {data_dir}`")
        if pipelines:
            start_detached(file)
            _announce_pipelines(data_dir)
        return
    supervisor = SupervisorProcess(cluster.bootstrap, data_dir) if pipelines else None
    with suppress(KeyboardInterrupt):  # the usual end of the command
        _announce(cluster, began, f"Ctrl-C or `penstock cluster down --data-dir {data_dir}`")
        if supervisor is not None:
            supervisor.start()
            _announce_pipelines(data_dir)
        _wait_for_end(file, start)
    if supervisor is not None:
        supervisor.stop()
    _stop(file)


def down(data_dir: DataDirOption) -> None:
    """Stop the pipelines, the brokers, then ZooKeeper."""
    _stop(ClusterFile(data_dir))


def start(node_id: NodeArgument, data_dir: DataDirOption) -> None:
    """Start a stopped broker again with the same data, ports and settings."""
    file = ClusterFile(data_dir)
    broker = file.load().broker(node_id)
    if broker.running is not None:
        typer.echo(f"broker {node_id} is already running")
        return
    cluster = ClusterStart(file).run(lambda _: file.load(), node_id)
    typer.echo(where(cluster.broker(node_id)))


def kill(node_id: NodeArgument, data_dir: DataDirOption) -> None:
    """Kill a broker with SIGKILL, to simulate a crash."""
    process = ClusterFile(data_dir).load().broker(node_id).running
    if process is None:
        raise Failure(
            f"broker {node_id} is not running",
            f"`penstock cluster status --data-dir {data_dir}` shows the brokers.",
        )
    end_all([process], signal.SIGKILL, STOP_SECONDS)
    typer.echo(f"killed broker {node_id} (pid {process.pid})")


def _planned(
    data_dir: Path, known: LocalCluster | None, given: Mapping[str, Any], settings: Mapping[str, str]
) -> LocalCluster:
    """Return the cluster to start: the known one, or a new one with the options `given`. Adds `settings` and, for a
    secure cluster, certificates.

    Raises Failure if `given` differs from the known cluster.
    """
    if known is None:
        known = plan_cluster(Form(**given))
    else:
        _check_same(data_dir, known.form, given)
    made: dict[str, str] = {}
    if known.form.secure:
        made = secure_cluster(data_dir, known.form.base_port, known.bootstrap)
        if known.zookeeper.may_use_tls:
            made |= secure_zookeeper(data_dir)
    return with_settings(known, {**made, **settings})


def _check_same(directory: Path, form: Form, given: Mapping[str, Any]) -> None:
    """Raise Failure if an option differs from the one that the cluster was created with."""
    for option, value in given.items():
        created_with = getattr(form, option)
        if value != created_with:
            raise Failure(
                f"the cluster in {directory} was created with --{option.replace('_', '-')} {created_with}, not {value}",
                "Omit the option, or create a cluster in another --data-dir; `penstock cluster add` adds a broker.",
                code=ExitCode.USAGE,
            )


def _announce(cluster: LocalCluster, began: float, how_to_stop: str) -> None:
    typer.echo(f"ZooKeeper at {cluster.zookeeper.hosts}")
    for broker in cluster.brokers:
        typer.echo(where(broker))
    typer.echo(f"bootstrap servers: {cluster.bootstrap}")
    typer.echo(f"all brokers serve after {time.monotonic() - began:.1f} s; {how_to_stop} stops them")


def _announce_pipelines(data_dir: Path) -> None:
    typer.echo(f"pipelines: log in {log_path(data_dir)}")


def _wait_for_end(file: ClusterFile, started: ClusterStart) -> None:
    """Wait until other commands have stopped all brokers, and report each broker that ended."""
    running = {broker.node_id for broker in file.load().brokers}
    while running:
        time.sleep(POLL_SECONDS)
        for child in started.children:
            child.poll()
        now = {broker.node_id for broker in file.load().brokers if broker.running}
        for node_id in sorted(running - now):
            typer.echo(f"broker {node_id} ended; its log is {file.log_path(node_id)}", err=True)
        running = now


def _stop(file: ClusterFile) -> None:
    """Stop the supervisor of pipelines, the brokers, then ZooKeeper. A second signal kills brokers and ZooKeeper, which
    is as safe as a crash.
    """
    file.load()  # fails before a lock file is created if there is no cluster
    with file.locked():
        cluster = file.load()
        brokers = [broker.running for broker in cluster.brokers if broker.running]
        zookeeper = [cluster.zookeeper.running] if cluster.zookeeper.running else []
        try:
            stop_detached(cluster)
            clean = end_all(filter(None, brokers), signal.SIGTERM, STOP_SECONDS)
            end_all(filter(None, zookeeper), signal.SIGTERM, STOP_SECONDS)
        except KeyboardInterrupt:
            end_all(filter(None, [*brokers, *zookeeper]), signal.SIGKILL, STOP_SECONDS)
            raise
    if not clean:
        raise Failure(
            f"a broker did not stop within {STOP_SECONDS:.0f} s and was killed",
            f"The logs of the brokers ({file.log_path(cluster.brokers[0].node_id)}, ...) show the reason.",
        )
    typer.echo(f"stopped {len(brokers)} {'broker' if len(brokers) == 1 else 'brokers'}")
