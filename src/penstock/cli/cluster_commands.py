"""`penstock cluster`: run a cluster on this machine (up, down, start, kill); show the status of any."""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli import cluster_adopt, cluster_moving
from penstock.cli.cluster_file import ClusterFile, Form, LocalBroker, LocalCluster
from penstock.cli.cluster_plan import plan_cluster, with_settings
from penstock.cli.cluster_process import end_all
from penstock.cli.cluster_start import ClusterStart
from penstock.cli.cluster_status import print_status, status_of_any, status_of_local
from penstock.cli.failures import ExitCode, Failure
from penstock.cli.options import JsonOption, SetOption
from penstock.cli.output import print_json
from penstock.config.loading import parse_assignments

DEFAULT = Form()
STOP_SECONDS = 30.0
LOOK_SECONDS = 0.5
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

app = typer.Typer(
    help="Run a cluster on this machine; inspect, extend and repair any cluster.", no_args_is_help=True
)

DataDirOption = Annotated[
    Path, typer.Option("--data-dir", metavar="DIR", help="The directory of the cluster on this machine.")
]
NodeArgument = Annotated[int, typer.Argument(metavar="N", help="The broker id.")]


def register(root: typer.Typer) -> None:
    cluster_moving.add_to(app)
    cluster_adopt.add_to(app)
    root.add_typer(app, name="cluster")


@app.command()
def up(
    data_dir: DataDirOption,
    brokers: Annotated[
        int | None, typer.Option(min=1, help=f"Number of brokers; {DEFAULT.brokers} by default.")
    ] = None,
    base_port: Annotated[
        int | None,
        typer.Option(
            min=2, help=f"Port of the first broker, followed by the others; {DEFAULT.base_port} by default."
        ),
    ] = None,
    http_base_port: Annotated[
        int | None,
        typer.Option(
            min=1,
            help=f"HTTP port of the first broker, followed by the others; {DEFAULT.http_base_port} by default.",
        ),
    ] = None,
    zookeeper: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT[/CHROOT]", help="An existing ZooKeeper; by default one is started."),
    ] = None,
    settings: SetOption = None,
    detach: Annotated[
        bool, typer.Option("--detach", help="Return once all brokers serve, and leave them running.")
    ] = False,
) -> None:
    """Start ZooKeeper and brokers on this machine: a new cluster, or the one that the directory holds."""
    began = time.monotonic()
    file = ClusterFile(data_dir)
    options: dict[str, Any] = {
        "brokers": brokers,
        "base_port": base_port,
        "http_base_port": http_base_port,
        "zookeeper": zookeeper,
    }
    given = {option: value for option, value in options.items() if value is not None}

    def change(known: LocalCluster | None) -> LocalCluster:
        if known is None:
            known = plan_cluster(Form(**given))
        else:
            _check_same(known.form, given)
        return with_settings(known, parse_assignments(settings or []))

    for number in STOP_SIGNALS:
        signal.signal(number, signal.default_int_handler)
    start = ClusterStart(file)
    cluster = start.run(change)
    if detach:
        _announce(cluster, began, f"`penstock cluster down --data-dir {data_dir}`")
        return
    try:
        _announce(cluster, began, f"Ctrl-C or `penstock cluster down --data-dir {data_dir}`")
        _look_after(file, start)
    except KeyboardInterrupt:
        pass  # the expected end
    _stop(file)


@app.command()
def down(data_dir: DataDirOption) -> None:
    """Stop the brokers, then ZooKeeper."""
    _stop(ClusterFile(data_dir))


@app.command()
def start(node_id: NodeArgument, data_dir: DataDirOption) -> None:
    """Start a stopped broker again with the same data, ports and settings."""
    file = ClusterFile(data_dir)
    broker = file.load().broker(node_id)
    if broker.running is not None:
        typer.echo(f"broker {node_id} runs already")
        return
    cluster = ClusterStart(file).run(lambda _: file.load(), node_id)
    typer.echo(_where(cluster.broker(node_id)))


@app.command()
def kill(node_id: NodeArgument, data_dir: DataDirOption) -> None:
    """Kill a broker with SIGKILL, as a crash would."""
    process = ClusterFile(data_dir).load().broker(node_id).running
    if process is None:
        raise Failure(f"broker {node_id} does not run")
    end_all([process], signal.SIGKILL, STOP_SECONDS)
    typer.echo(f"killed broker {node_id} (pid {process.pid})")


@app.command()
def status(
    data_dir: Annotated[
        Path | None,
        typer.Option("--data-dir", metavar="DIR", help="The directory of a cluster on this machine."),
    ] = None,
    bootstrap: Annotated[
        str | None,
        typer.Option(
            "--bootstrap",
            "-b",
            envvar="PENSTOCK_BOOTSTRAP",
            metavar="HOST:PORT",
            help="A broker of any cluster.",
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Show the brokers, the controller, and how many partitions are under-replicated or offline."""
    if data_dir is not None:
        found = status_of_local(ClusterFile(data_dir).load())
    elif bootstrap is not None:
        found = status_of_any(bootstrap)
    else:
        raise Failure("name a cluster with --data-dir or --bootstrap", code=ExitCode.USAGE)
    if json:
        print_json(found.as_json())
    else:
        print_status(found)


def _where(broker: LocalBroker) -> str:
    return f"broker {broker.node_id} at {broker.address}, metrics and health at {broker.http_address}"


def _check_same(form: Form, given: Mapping[str, Any]) -> None:
    """Raise Failure if an option differs from the one that the cluster was created with."""
    for option, value in given.items():
        made_with = getattr(form, option)
        if value != made_with:
            raise Failure(
                f"the cluster there was made with --{option.replace('_', '-')} {made_with}, not {value}",
                "Leave the option out, or name another --data-dir; `penstock cluster add` adds a broker.",
                code=ExitCode.USAGE,
            )


def _announce(cluster: LocalCluster, began: float, how_to_stop: str) -> None:
    typer.echo(f"ZooKeeper at {cluster.zookeeper.hosts}")
    for broker in cluster.brokers:
        typer.echo(_where(broker))
    typer.echo(f"bootstrap servers: {cluster.bootstrap}")
    typer.echo(f"all serve after {time.monotonic() - began:.1f} s; {how_to_stop} stops them")


def _look_after(file: ClusterFile, started: ClusterStart) -> None:
    """Wait until other commands have stopped all brokers, and report each broker that ended."""
    running = {broker.node_id for broker in file.load().brokers}
    while running:
        time.sleep(LOOK_SECONDS)
        for child in started.children:
            child.poll()
        now = {broker.node_id for broker in file.load().brokers if broker.running}
        for node_id in sorted(running - now):
            typer.echo(f"broker {node_id} has ended; see {file.log_path(node_id)}", err=True)
        running = now


def _stop(file: ClusterFile) -> None:
    """Stop the brokers, then ZooKeeper; a second signal kills all processes, which is as safe as a crash."""
    file.load()  # fails before a lock file is created if there is no cluster
    with file.locked():
        cluster = file.load()
        brokers = [broker.running for broker in cluster.brokers if broker.running]
        zookeeper = [cluster.zookeeper.running] if cluster.zookeeper.running else []
        try:
            clean = end_all(filter(None, brokers), signal.SIGTERM, STOP_SECONDS)
            end_all(filter(None, zookeeper), signal.SIGTERM, STOP_SECONDS)
        except KeyboardInterrupt:
            end_all(filter(None, [*brokers, *zookeeper]), signal.SIGKILL, STOP_SECONDS)
            raise
    if not clean:
        raise Failure(
            f"a broker did not stop within {STOP_SECONDS:.0f} s and was killed", "Its log tells why."
        )
    typer.echo(f"stopped {len(brokers)} {'broker' if len(brokers) == 1 else 'brokers'}")
