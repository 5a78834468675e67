"""`penstock retry-policy`: the number of attempts and the delays with which a consumer group retries failed
messages.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from penstock.cli.cluster_client import ClusterClient
from penstock.cli.failures import ExitCode, Failure
from penstock.cli.options import DEFAULT_BOOTSTRAP, BootstrapOption, JsonOption
from penstock.cli.output import print_json
from penstock.config.retry_backoff import parse_retry_backoff
from penstock.config.retry_options import RETRY_MAX_ATTEMPTS
from penstock.delay.retry_policy import RetryPolicy, default_policy

GroupArgument = Annotated[str, typer.Argument(help="The consumer group.")]
AttemptsOption = Annotated[
    int, typer.Option("--max-attempts", min=2, max=100, help="Deliveries, the first one included.")
]
BackOffOption = Annotated[
    str | None,
    typer.Option(
        "--back-off",
        metavar="DELAYS",
        help="Delays before the next attempts: 1s,10s,1m, or exponential:1s:10m.",
    ),
]
DeadLetterOption = Annotated[
    str | None,
    typer.Option(
        "--dead-letter",
        metavar="TOPIC",
        help="Topic after the last attempt, created unless it exists; by default GROUP.dead.",
    ),
]
PartitionsOption = Annotated[
    int | None, typer.Option("--partitions", "-p", min=1, help="Partitions of a new retry topic.")
]

app = typer.Typer(help="Set how a consumer group tries failed messages again.", no_args_is_help=True)


def register(root: typer.Typer) -> None:
    root.add_typer(app, name="retry-policy")


@app.command("set")
def set_policy(
    group: GroupArgument,
    max_attempts: AttemptsOption = RETRY_MAX_ATTEMPTS.default,
    back_off: BackOffOption = None,
    dead_letter: DeadLetterOption = None,
    partitions: PartitionsOption = None,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    json: JsonOption = False,
) -> None:
    """Set the retry policy of a group, and create its retry topic."""
    if not group:
        raise Failure("the group id must not be empty", code=ExitCode.USAGE)
    known = default_policy(group)
    try:
        text = known.back_off if back_off is None else str(parse_retry_backoff(back_off))
    except ValueError as error:
        raise Failure(f"--back-off: {error}", "Give delays such as 1s,10s,1m.", code=ExitCode.USAGE) from None
    letters = known.dead_letter if dead_letter is None else dead_letter
    policy = RetryPolicy(group, max_attempts, text, letters)
    done = ClusterClient(bootstrap).run(
        lambda client: client.retry_policies.set(policy, partitions or -1), group
    )
    _print(done, json=json)


@app.command()
def show(
    group: GroupArgument, bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP, json: JsonOption = False
) -> None:
    """Show the retry policy of a group."""
    _print(ClusterClient(bootstrap).run(lambda client: client.retry_policies.get(group), group), json=json)


@app.command()
def delete(
    group: GroupArgument, bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP, json: JsonOption = False
) -> None:
    """Delete the retry policy of a group. Messages in the retry topic are still delivered."""
    deleted = ClusterClient(bootstrap).run(lambda client: client.retry_policies.delete(group), group)
    if json:
        print_json(shown(deleted))
    else:
        typer.echo(f"deleted the retry policy of {group}; topic {deleted.topic} keeps its messages")


def shown(policy: RetryPolicy) -> dict[str, Any]:
    return {
        "group": policy.group,
        "topic": policy.topic,
        "max_attempts": policy.max_attempts,
        "back_off": policy.back_off,
        "dead_letter": policy.dead_letter,
    }


def _print(policy: RetryPolicy, *, json: bool) -> None:
    if json:
        print_json(shown(policy))
        return
    letters = policy.dead_letter or "none"
    typer.echo(
        f"{policy.group}  topic {policy.topic}, at most {policy.max_attempts} attempts, "
        f"back-off {policy.back_off or 'none'}, dead letters in {letters}"
    )
