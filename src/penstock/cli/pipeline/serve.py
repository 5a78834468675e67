"""`penstock pipeline serve` and `run`: run declared pipelines."""

from __future__ import annotations

import signal
from typing import Annotated, Any

import typer

from penstock.cli.cluster_client import ClusterClient
from penstock.cli.failures import Failure
from penstock.cli.options import DEFAULT_BOOTSTRAP, BootstrapOption, JsonOption
from penstock.cli.output import print_json
from penstock.cli.pipeline.options import ConfOption, MasterOption, parse_conf
from penstock.cli.pipeline.session import LOCAL, failure_of
from penstock.clock import SystemClock
from penstock.errors import ConfigError, PenstockError
from penstock.extras import how_to_install
from penstock.internal_client.client import InternalClient
from penstock.internal_client.pipelines import GROUP, StoredPipeline

CheckpointsOption = Annotated[
    str,
    typer.Option(
        "--checkpoints",
        metavar="DIR",
        envvar="PENSTOCK_PIPELINE_CHECKPOINTS",
        help="The directory of the checkpoints, which all supervisors share.",
    ),
]
MetricsPortOption = Annotated[
    int | None,
    typer.Option("--metrics-port", min=0, max=65535, help="Serve metrics for Prometheus at this port."),
]
DEFAULT_CHECKPOINTS = "pipelines"
_WAIT_SECONDS = 1.0
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The name of the pipeline.")]


def register(app: typer.Typer) -> None:
    app.command("serve")(serve)
    app.command("run")(run)


def serve(
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    master: MasterOption = None,
    checkpoints: CheckpointsOption = DEFAULT_CHECKPOINTS,
    conf: ConfOption = None,
    metrics_port: MetricsPortOption = None,
) -> None:
    """Run declared pipelines until Ctrl-C. Several supervisors share the pipelines; each pipeline runs at one of
    them.
    """
    ClusterClient(bootstrap)
    supervisor = _supervisor(bootstrap, master, checkpoints, conf, None)
    if metrics_port is not None:
        from penstock.pipeline.supervisor.metrics import serve_metrics

        port = serve_metrics(supervisor.states, "127.0.0.1", metrics_port)
        typer.echo(f"metrics at http://127.0.0.1:{port}/metrics", err=True)
    typer.echo(f"running the pipelines of {bootstrap}; checkpoints in {checkpoints}", err=True)
    _loop(supervisor)


def run(
    name: NameArgument,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    master: MasterOption = None,
    checkpoints: CheckpointsOption = DEFAULT_CHECKPOINTS,
    conf: ConfOption = None,
    json: JsonOption = False,
) -> None:
    """Run a pipeline now, up to the current end of its source. Its supervisor runs it, or this process if there is no
    supervisor.
    """
    cluster = ClusterClient(bootstrap)
    pipeline = cluster.run(lambda client: client.pipelines.get(name), name)
    if pipeline is None:
        raise Failure(f"there is no pipeline {name!r}", "`penstock pipeline list` shows the pipelines.")
    if pipeline.is_paused:
        raise Failure(f"the pipeline {name} is paused", f"Resume it: `penstock pipeline resume {name}`.")
    if cluster.run(_has_supervisor, name):
        found = _run_by_supervisor(cluster, pipeline)
    else:
        supervisor = _supervisor(bootstrap, master, checkpoints, conf, name)
        _loop(supervisor)
        found = supervisor.result or {}
    if found.get("state") == "failed":
        raise Failure(
            f"{name}: {found.get('error')}", f"`penstock pipeline logs {name}` shows what happened."
        )
    if json:
        print_json({"name": name, "state": found.get("state"), "rows": found.get("rows", 0)})
    else:
        typer.echo(f"ran {name}; {found.get('rows', 0):,} rows written so far")


def _supervisor(
    bootstrap: str, master: str | None, checkpoints: str, conf: list[str] | None, only: str | None
) -> Any:
    settings = parse_conf(conf)
    try:
        import deltalake  # noqa: F401
        import pyspark  # noqa: F401
    except ImportError as missing:
        raise Failure(
            f"the pipeline needs {missing.name}, which is not installed",
            f"Install it: {how_to_install('pipeline')}",
        ) from None
    from penstock.pipeline.supervisor.supervisor import PipelineSupervisor, SupervisorSettings

    chosen = SupervisorSettings(bootstrap, checkpoints, master or LOCAL, settings, only)
    try:
        return PipelineSupervisor(chosen, lambda text: typer.echo(text, err=True))
    except (PenstockError, ConfigError) as error:
        raise failure_of(error) or Failure(str(error)) from error


def _loop(supervisor: Any) -> None:
    """Call `step` until the supervisor is finished, or until a signal to stop."""
    is_ended = False

    def end(*_: object) -> None:
        nonlocal is_ended
        is_ended = True

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    try:
        while not (is_ended or supervisor.is_over):
            supervisor.step()
    finally:
        supervisor.stop()


async def _has_supervisor(client: InternalClient) -> bool:
    from penstock.errors import BrokerError

    try:
        return bool((await client.groups.describe(GROUP)).members)
    except BrokerError:
        return False


def _run_by_supervisor(cluster: ClusterClient, pipeline: StoredPipeline) -> dict[str, Any]:
    """Request a run, and wait until the supervisor has completed it."""
    import threading

    wanted = cluster.run(lambda client: client.pipelines.request_run(pipeline), pipeline.name)
    began, clock = SystemClock().now_ms(), SystemClock()
    while True:
        threading.Event().wait(_WAIT_SECONDS)
        found: dict[str, Any] = cluster.run(lambda client: client.pipelines.statuses(), pipeline.name).get(
            pipeline.name, {}
        )
        if found.get("run_requests", 0) >= wanted.run_requests:
            return found
        if (
            found.get("state") == "running"
            and pipeline.document.get("schedule", "continuous") == "continuous"
        ):
            return found
        if clock.now_ms() - began > 3_600_000:
            raise Failure(
                f"{pipeline.name} did not run within an hour", "`penstock pipeline status` shows its state."
            )
