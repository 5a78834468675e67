"""`penstock webhook`: create, list, describe, alter, pause, resume, test and delete webhooks, and rotate secrets."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from penstock.cli.cluster_client import ClusterClient
from penstock.cli.failures import ExitCode, Failure
from penstock.cli.options import DEFAULT_BOOTSTRAP, BootstrapOption, JsonOption, YesOption
from penstock.cli.output import NONE, confirm, print_json, print_table
from penstock.config.retry_backoff import parse_delay_ms
from penstock.internal_client.webhooks import (
    DEFAULT_CONCURRENCY,
    DEFAULT_FORMAT,
    FORMATS,
    NewWebhook,
    WebhookDetails,
)

WebhookArgument = Annotated[str, typer.Argument(help="The name of the webhook.")]
SecretOption = Annotated[
    str | None,
    typer.Option(
        "--secret",
        metavar="SECRET",
        envvar="PENSTOCK_WEBHOOK_SECRET",
        help="Secret that signs the calls; by default a random one is generated and printed once.",
    ),
]
UrlOption = Annotated[str, typer.Option("--url", metavar="URL", help="The receiver: an http or https URL.")]
QueueOption = Annotated[
    str | None, typer.Option("--queue", metavar="QUEUE", help="Call for the messages of this queue.")
]
TopicOption = Annotated[
    str | None,
    typer.Option("--topic", metavar="TOPIC", help="Call for new messages of this topic, over a new queue."),
]
FilterOption = Annotated[
    str | None,
    typer.Option(
        "--filter", "-f", metavar="EXPR", help="With --topic: a CEL expression that selects messages."
    ),
]
ConcurrencyOption = Annotated[int, typer.Option("--concurrency", help="Maximum number of calls in flight.")]
TimeoutOption = Annotated[str, typer.Option("--timeout", metavar="TIME", help="Timeout of a call.")]
FormatOption = Annotated[
    str, typer.Option("--format", metavar="FORMAT", help="Bodies: raw, as stored, or cloudevent.")
]

app = typer.Typer(help="Create and inspect webhooks: HTTP calls for messages.", no_args_is_help=True)


def register(root: typer.Typer) -> None:
    root.add_typer(app, name="webhook")


@app.command()
def create(
    webhook: WebhookArgument,
    url: UrlOption,
    queue: QueueOption = None,
    topic: TopicOption = None,
    filter_text: FilterOption = None,
    concurrency: ConcurrencyOption = DEFAULT_CONCURRENCY,
    timeout: TimeoutOption = "10s",
    body_format: FormatOption = DEFAULT_FORMAT,
    secret: SecretOption = None,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    json: JsonOption = False,
) -> None:
    """Create a webhook: an HTTP POST for each message of a queue, or for new messages of a topic."""
    _check_source(queue, topic, filter_text)
    if body_format not in FORMATS:
        raise Failure(
            f"unknown format {body_format!r}", f"Use one of {', '.join(FORMATS)}.", code=ExitCode.USAGE
        )
    timeout_ms = _milliseconds("--timeout", timeout)
    source = queue or "", topic or "", filter_text or ""
    new = NewWebhook(webhook, url, *source, concurrency, timeout_ms, body_format, secret or "")
    created = ClusterClient(bootstrap).run(lambda client: client.webhooks.create(new), webhook)
    if json:
        print_json({**_shown(created.details), "secret": created.secret or None})
        return
    typer.echo(f"created webhook {webhook} of queue {created.details.summary.queue}")
    _print_secret(created.secret)


def _check_source(queue: str | None, topic: str | None, filter_text: str | None) -> None:
    if (queue is None) == (topic is None):
        raise Failure(
            "give --queue or --topic, and not both",
            "--queue QUEUE uses a queue that exists; --topic TOPIC creates one.",
            code=ExitCode.USAGE,
        )
    if filter_text and topic is None:
        raise Failure(
            "--filter needs --topic", "A queue has the messages that it was created for.", code=ExitCode.USAGE
        )


@app.command("list")
def list_webhooks(bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP, json: JsonOption = False) -> None:
    """List the webhooks."""
    found = ClusterClient(bootstrap).run(lambda client: client.webhooks.all(), "the webhooks")
    if json:
        print_json([asdict(each) for each in found])
    elif found:
        rows = [
            (
                each.name,
                each.queue,
                each.url,
                each.concurrency,
                f"{each.timeout_ms / 1000:g} s",
                "paused" if each.paused else "active",
            )
            for each in found
        ]
        print_table(["webhook", "queue", "url", "concurrency", "timeout", "state"], rows)
    else:
        typer.echo("no webhooks; `penstock webhook create NAME` creates one", err=True)


@app.command()
def describe(
    webhook: WebhookArgument, bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP, json: JsonOption = False
) -> None:
    """Show the settings of a webhook, and statistics of the calls that the current owner has made."""
    _print_details(
        ClusterClient(bootstrap).run(lambda client: client.webhooks.describe(webhook), webhook), json=json
    )


@app.command()
def alter(
    webhook: WebhookArgument,
    url: Annotated[str | None, typer.Option("--url", metavar="URL", help="The receiver.")] = None,
    concurrency: Annotated[
        int | None, typer.Option("--concurrency", help="Maximum number of calls in flight.")
    ] = None,
    timeout: Annotated[
        str | None, typer.Option("--timeout", metavar="TIME", help="Timeout of a call.")
    ] = None,
    body_format: Annotated[
        str | None, typer.Option("--format", metavar="FORMAT", help="Bodies: raw, or cloudevent.")
    ] = None,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    json: JsonOption = False,
) -> None:
    """Change a webhook. Calls in progress keep the old settings. Use `rotate-secret` to change the secret."""
    timeout_ms = None if timeout is None else _milliseconds("--timeout", timeout)
    given = {"url": url, "concurrency": concurrency, "timeout_ms": timeout_ms, "format": body_format}
    changes = {field: value for field, value in given.items() if value is not None}
    if not changes:
        raise Failure(
            "nothing to change", "Give --url, --concurrency, --timeout or --format.", code=ExitCode.USAGE
        )
    details = ClusterClient(bootstrap).run(lambda client: client.webhooks.alter(webhook, changes), webhook)
    print_json(_shown(details)) if json else typer.echo(f"changed webhook {webhook}")


@app.command()
def pause(
    webhook: WebhookArgument, bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP, json: JsonOption = False
) -> None:
    """Pause the calls of a webhook; messages stay in the queue."""
    details = ClusterClient(bootstrap).run(lambda client: client.webhooks.pause(webhook), webhook)
    print_json(_shown(details)) if json else typer.echo(f"paused webhook {webhook}")


@app.command()
def resume(
    webhook: WebhookArgument, bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP, json: JsonOption = False
) -> None:
    """Continue the calls of a paused webhook."""
    details = ClusterClient(bootstrap).run(lambda client: client.webhooks.resume(webhook), webhook)
    print_json(_shown(details)) if json else typer.echo(f"resumed webhook {webhook}")


@app.command("rotate-secret")
def rotate_secret(
    webhook: WebhookArgument,
    secret: SecretOption = None,
    overlap: Annotated[
        str, typer.Option("--overlap", metavar="TIME", help="How long the old secret signs calls too.")
    ] = "24h",
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    json: JsonOption = False,
) -> None:
    """Replace the secret of a webhook. Calls have two signatures until the old secret expires."""
    overlap_ms = _milliseconds("--overlap", overlap)
    changed = ClusterClient(bootstrap).run(
        lambda client: client.webhooks.rotate_secret(webhook, secret or "", overlap_ms), webhook
    )
    if json:
        print_json({**_shown(changed.details), "secret": changed.secret or None})
        return
    typer.echo(f"changed the secret of webhook {webhook}")
    _print_secret(changed.secret)


@app.command("test")
def try_webhook(
    webhook: WebhookArgument, bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP, json: JsonOption = False
) -> None:
    """Call the receiver once with a test message, and show the response."""
    tested = ClusterClient(bootstrap).run(lambda client: client.webhooks.test(webhook), webhook)
    if json:
        print_json(asdict(tested))
    elif tested.status is not None:
        typer.echo(f"the receiver answered {tested.status} after {tested.latency_ms:g} ms")
    if not tested.ok:
        reason = tested.error or f"the receiver answered {tested.status}"
        raise Failure(
            f"the test of webhook {webhook} failed: {reason}",
            "Only a response with a 2xx status counts as a success.",
        )


@app.command()
def delete(
    webhook: WebhookArgument,
    yes: YesOption = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    json: JsonOption = False,
) -> None:
    """Delete a webhook, and the queue that was created for it. The topic and the dead letters are kept."""
    cluster = ClusterClient(bootstrap)
    cluster.run(lambda client: client.webhooks.describe(webhook), webhook)
    confirm(f"Delete webhook {webhook}?", yes=yes)
    cluster.run(lambda client: client.webhooks.delete(webhook), webhook)
    print_json({"webhook": webhook, "deleted": True}) if json else typer.echo(f"deleted webhook {webhook}")


def _milliseconds(option: str, text: str) -> int:
    try:
        return parse_delay_ms(text)
    except ValueError:
        raise Failure(
            f"{option} {text[:80]!r} is not a duration",
            "Give one such as 500ms, 10s or 1m.",
            code=ExitCode.USAGE,
        ) from None


def _print_secret(secret: str) -> None:
    if secret:
        typer.echo(f"secret {secret}\nKeep it: it is not shown again.")


def _print_details(details: WebhookDetails, *, json: bool) -> None:
    if json:
        print_json(_shown(details))
        return
    summary = details.summary
    source = f"topic {summary.topic}, queue {summary.queue}" if summary.topic else f"queue {summary.queue}"
    state = "paused" if summary.paused else "active"
    typer.echo(f"{summary.name}  {source}, {state}")
    if summary.paused_reason:
        typer.echo(f"paused because {summary.paused_reason}")
    typer.echo(
        f"url {summary.url}\n"
        f"{summary.concurrency} calls at the same time, timeout {summary.timeout_ms / 1000:g} s, "
        f"format {summary.format}, filter {summary.filter or NONE}, secrets {details.secrets}"
    )
    typer.echo(
        f"broker {summary.owner}: {details.successes} successes, {details.failures} failures, "
        f"{details.in_flight} in flight, last answer {details.last_status or NONE}"
    )
    for problem in filter(None, (details.last_error, details.problem)):
        typer.echo(f"last error: {problem}")


def _shown(details: WebhookDetails) -> dict[str, Any]:
    shown = asdict(details)
    return {**shown.pop("summary"), **shown}
