"""`penstock group remove-member` and `delete-offsets`."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.cluster_client import ClusterClient
from penstock.cli.options import DEFAULT_BOOTSTRAP, BootstrapOption, JsonOption, YesOption
from penstock.cli.output import confirm, print_json

GroupArgument = Annotated[str, typer.Argument(help="The group id.")]
MemberArgument = Annotated[str, typer.Argument(help="The member's id, as `describe` shows it.")]
OffsetTopicOption = Annotated[
    list[str], typer.Option("--topic", metavar="TOPIC", help="A topic whose offsets are deleted; repeatable.")
]


def remove_member(
    group: GroupArgument,
    member: MemberArgument,
    yes: YesOption = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    json: JsonOption = False,
) -> None:
    """Remove a member from its group, which rebalances. If the consumer is still running, it joins again."""
    cluster = ClusterClient(bootstrap)
    cluster.run(lambda client: client.groups.describe_members(group), group)
    confirm(f"Remove member {member} from group {group}?", yes=yes)
    cluster.run(lambda client: client.groups.remove_member(group, member), group)
    if json:
        print_json({"group": group, "member": member, "removed": True})
    else:
        typer.echo(f"removed member {member} from group {group}")


def delete_offsets(
    group: GroupArgument,
    topic: OffsetTopicOption,
    yes: YesOption = False,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    json: JsonOption = False,
) -> None:
    """Delete the committed offsets of topics that no member of the group reads."""
    cluster = ClusterClient(bootstrap)
    confirm(f"Delete the offsets that group {group} has committed for {', '.join(topic)}?", yes=yes)
    for name in topic:
        cluster.run(lambda client, name=name: client.groups.delete_offsets(group, name), group)  # type: ignore[misc]
        if json:
            print_json({"group": group, "topic": name, "deleted": True})
        else:
            typer.echo(f"deleted the offsets of {name} in group {group}")
