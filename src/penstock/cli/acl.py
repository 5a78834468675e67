"""`penstock acl`: rules of authorization. Commands: allow, deny, list, remove, test, report, suggest."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Annotated, Any

import typer

from penstock.cli.admin_client import run_admin
from penstock.cli.failures import ExitCode, Failure
from penstock.cli.options import DEFAULT_BOOTSTRAP, BootstrapOption, JsonOption
from penstock.cli.output import print_json, print_table
from penstock.internal_client.client import InternalClient
from penstock.security.acl import (
    WILDCARD,
    AclBinding,
    AclFilter,
    Operation,
    Permission,
    Principal,
    ResourcePattern,
    ResourceType,
)
from penstock.security.acl_text import (
    command_of,
    parse_operations,
    parse_resource,
    parse_user,
    resource_text,
    rules_of,
    smallest_rules,
)

UserArgument = Annotated[str, typer.Argument(metavar="USER", help="The user name; * for all users.")]
OperationsArgument = Annotated[
    str,
    typer.Argument(
        metavar="OPERATIONS",
        help="Operations as read,write or all, or a preset: producer, consumer, read-only, admin.",
    ),
]
ResourcesArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="RESOURCE...",
        help="topic:NAME, group:NAME, transactional-id:NAME or cluster; * for all names.",
    ),
]
ResourceArgument = Annotated[
    str, typer.Argument(metavar="RESOURCE", help="The resource: topic:NAME, group:NAME or cluster.")
]
PrefixOption = Annotated[bool, typer.Option("--prefix", help="The name is a prefix of resource names.")]
HostOption = Annotated[str, typer.Option("--host", metavar="ADDRESS", help="The address of the client.")]

app = typer.Typer(help="Manage the rights of users (access control lists).", no_args_is_help=True)


def register(root: typer.Typer) -> None:
    root.add_typer(app, name="acl")


@app.command("allow")
def allow(
    user: UserArgument,
    operations: OperationsArgument,
    resources: ResourcesArgument,
    prefix: PrefixOption = False,
    host: HostOption = WILDCARD,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
) -> None:
    """Allow a user operations on resources."""
    _create(_parsed(user, operations, resources, Permission.ALLOW, prefix, host), bootstrap)


@app.command("deny")
def deny(
    user: UserArgument,
    operations: OperationsArgument,
    resources: ResourcesArgument,
    prefix: PrefixOption = False,
    host: HostOption = WILDCARD,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
) -> None:
    """Deny a user operations on resources. A deny rule takes precedence over all rules that allow."""
    _create(_parsed(user, operations, resources, Permission.DENY, prefix, host), bootstrap)


@app.command("remove")
def remove(
    user: Annotated[
        str | None, typer.Argument(metavar="[USER]", help="The user name; * for rules of all users.")
    ] = None,
    operations: Annotated[
        str | None, typer.Argument(metavar="[OPERATIONS]", help="Operations or a preset, as for `acl allow`.")
    ] = None,
    resource: Annotated[
        str | None,
        typer.Argument(metavar="[RESOURCE]", help="The resource: topic:NAME, group:NAME or cluster."),
    ] = None,
    prefix: PrefixOption = False,
    force: Annotated[bool, typer.Option("--force", help="Remove all rules if nothing is named.")] = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    json: JsonOption = False,
) -> None:
    """Remove the rules of a user, or only its rules for some operations on a resource."""
    filters = _filters(user, operations, resource, prefix)
    if not force and any(each.names_nothing for each in filters):
        raise Failure(
            "this would remove all rules of the cluster",
            "Name a user, or give --force.",
            code=ExitCode.USAGE,
        )
    removed = run_admin(bootstrap, lambda client: client.acls.delete(filters))
    if json:
        print_json([_fields(rule) for rule in removed])
        return
    for rule in removed:
        typer.echo(f"removed: {rule}")
    if not removed:
        typer.echo("No rule matches; nothing was removed.")


@app.command("list")
def list_rules(
    user: Annotated[
        str | None, typer.Option("--user", metavar="USER", help="Rules of this user only.")
    ] = None,
    resource: Annotated[
        str | None,
        typer.Option("--resource", metavar="RESOURCE", help="Rules that apply to this resource only."),
    ] = None,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    json: JsonOption = False,
) -> None:
    """List the authorization rules."""
    found = None if resource is None else _parse(lambda: parse_resource(resource))
    wanted = AclFilter(
        None if found is None else found.kind,
        None if found is None else found.name,
        is_match=found is not None,
        principal=None if user is None else parse_user(user),
    )
    rules = run_admin(bootstrap, lambda client: client.acls.describe(wanted))
    if json:
        print_json([_fields(rule) for rule in rules])
    elif rules:
        print_table(("RESOURCE", "USER", "OPERATION", "PERMISSION", "HOST"), [_row(rule) for rule in rules])
    else:
        typer.echo("There are no rules; `penstock acl allow` creates one.")


@app.command("test")
def decide(
    user: UserArgument,
    operation: Annotated[str, typer.Argument(metavar="OPERATION", help="One operation, as read.")],
    resource: ResourceArgument,
    host: HostOption = "127.0.0.1",
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    json: JsonOption = False,
) -> None:
    """Show whether a user is allowed an operation, and the rule that decides."""
    asked = _parse(lambda: parse_resource(resource))
    operations = _parse(lambda: parse_operations(operation, asked.kind))
    principal = Principal("User", parse_user(user).removeprefix("User:"))

    decisions = run_admin(
        bootstrap, lambda client: client.acl_decisions.decide(principal, host, operations, asked)
    )
    if json:
        print_json(
            [{"operation": each.name, "allowed": allowed, "reason": why} for each, allowed, why in decisions]
        )
    else:
        for each, allowed, why in decisions:
            typer.echo(f"{'allowed' if allowed else 'refused'}: {each.name} {resource}: {why}")
    if not all(allowed for _, allowed, _ in decisions):
        raise typer.Exit(1)


@app.command("report")
def report(bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP, json: JsonOption = False) -> None:
    """Show the requests that were refused; in the mode `report`, those that the mode `enforce` would refuse."""
    mode, rows = run_admin(bootstrap, _refusals)
    if json:
        print_json({"mode": mode, "refusals": rows})
        return
    verb = "were refused" if mode == "enforce" else "would be refused by authorization.mode=enforce"
    if not rows:
        typer.echo(f"No requests {verb} since the brokers started (authorization.mode={mode}).")
        return
    typer.echo(f"Requests that {verb}:")
    columns = [
        (_user_of(each), each["operation"], _resource_of(each), each["host"], str(each["count"]))
        for each in rows
    ]
    print_table(("USER", "OPERATION", "RESOURCE", "HOST", "COUNT"), columns)


@app.command("suggest")
def suggest(bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP, json: JsonOption = False) -> None:
    """Print the smallest set of rules for the requests that `penstock acl report` shows."""
    _, rows = run_admin(bootstrap, _refusals)
    rules = smallest_rules(
        (each["principal"], Operation[each["operation"]], ResourceType[each["resource_type"]], each["name"])
        for each in rows
    )
    if json:
        print_json([_fields(rule) for rule in rules])
        return
    by_user = sorted(rules, key=lambda rule: (rule.entry.principal, rule.resource))
    for (_, resource), found in groupby(by_user, key=lambda rule: (rule.entry.principal, rule.resource)):
        typer.echo(command_of(resource, [rule.entry for rule in found]))
    if not rules:
        typer.echo("# No request lacks a right.")


async def _refusals(client: InternalClient) -> tuple[str, list[dict[str, Any]]]:
    """Return the authorization mode of the cluster, and the refused requests of all brokers, most frequent first."""
    mode, found = "off", dict[tuple[str, ...], dict[str, Any]]()
    for node_id in await client.inspection.broker_ids():
        answer = await client.inspection.refusals(node_id)
        mode = answer["mode"]
        for each in answer["refusals"]:
            key = (each["principal"], each["host"], each["operation"], each["resource_type"], each["name"])
            if key in found:
                found[key]["count"] += each["count"]
            else:
                found[key] = each
    return mode, sorted(found.values(), key=lambda each: -each["count"])


def _parse(parse: Any) -> Any:
    try:
        return parse()
    except ValueError as error:
        raise Failure(
            str(error), "`penstock acl allow --help` shows the forms.", code=ExitCode.USAGE
        ) from None


def _parsed(
    user: str, operations: str, resources: Sequence[str], permission: Permission, is_prefix: bool, host: str
) -> list[AclBinding]:
    rules: list[AclBinding] = _parse(
        lambda: rules_of(user, operations, resources, permission, is_prefix=is_prefix, host=host)
    )
    return rules


def _create(rules: list[AclBinding], bootstrap: str) -> None:
    run_admin(bootstrap, lambda client: client.acls.create(rules))
    for rule in rules:
        typer.echo(f"created: {rule}")


def _filters(user: str | None, operations: str | None, resource: str | None, prefix: bool) -> list[AclFilter]:
    principal = None if user is None else parse_user(user)
    if operations is None:
        return [AclFilter(principal=principal)]
    if resource is None:
        found = Operation.__members__.get(operations.upper().replace("-", "_"))
        if found is None:
            raise Failure(f"{operations!r} needs a resource", "Give one, as topic:NAME.", code=ExitCode.USAGE)
        return [AclFilter(principal=principal, operation=found)]
    pattern = _parse(lambda: parse_resource(resource, is_prefix=prefix))
    chosen = _parse(lambda: parse_operations(operations, pattern.kind))
    return [
        AclFilter(pattern.kind, pattern.name, pattern.pattern, principal=principal, operation=each)
        for each in chosen
    ]


def _fields(rule: AclBinding) -> dict[str, Any]:
    return {
        "resource_type": rule.resource.kind.name,
        "name": rule.resource.name,
        "pattern": rule.resource.pattern.name,
        "principal": rule.entry.principal,
        "host": rule.entry.host,
        "operation": rule.entry.operation.name,
        "permission": rule.entry.permission.name,
    }


def _row(rule: AclBinding) -> tuple[str, ...]:
    entry = rule.entry
    user = entry.principal.removeprefix("User:")
    return (str(rule.resource), user, entry.operation.name, entry.permission.name, entry.host)


def _user_of(refusal: dict[str, Any]) -> str:
    principal: str = refusal["principal"]
    return principal.removeprefix("User:")


def _resource_of(refusal: dict[str, Any]) -> str:
    kind = ResourceType[refusal["resource_type"]]
    return resource_text(ResourcePattern(kind, refusal["name"]))
