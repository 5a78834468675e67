"""One section of a definitions document: its entries, and the steps that lead from present entries to wanted
ones.

Entries are JSON objects. `DefinitionSection.plan` is pure; the methods that read or change the cluster send
requests.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final

from penstock.errors import BrokerError

if TYPE_CHECKING:
    from penstock.internal_client.definitions.reading import ClusterCalls, DefinitionReading

FORMAT: Final = 1
Entry = Mapping[str, Any]
Outcomes = Sequence[BrokerError | None]
"""Error of each entry, in order; None for an entry that was accepted."""
Right = tuple[str, str, str]
"""Operation, resource type and resource name that a user needs a right for."""
CLUSTER_RESOURCE: Final = ("CLUSTER", "kafka-cluster")


@dataclass(frozen=True, slots=True)
class FieldChange:
    """Change of one field; None as the new value returns the field to its default."""

    old: Any
    new: Any

    def __str__(self) -> str:
        new = "its default" if self.new is None else shown(self.new)
        return f"to {new}" if self.old is None else f"from {shown(self.old)} to {new}"


@dataclass(frozen=True, slots=True)
class ApplyStep:
    action: str
    """One of `create`, `change`, `delete` and `differs`. A `differs` step only reports a difference."""
    section: str
    name: str
    text: str
    """Description of the step for people."""
    entry: Entry = field(default_factory=dict)
    """Wanted entry from the document or, for a deletion, the present entry."""
    changes: Mapping[str, FieldChange] = field(default_factory=dict)
    problem: str = ""
    """Reason why the cluster would refuse the step, found by a dry run; empty if none was found."""

    def document(self) -> dict[str, Any]:
        changes = {name: {"from": each.old, "to": each.new} for name, each in self.changes.items()}
        return {
            "action": self.action,
            "section": self.section,
            "name": self.name,
            "text": self.text,
            "changes": changes,
            "problem": self.problem,
        }


class DefinitionSection(ABC):
    """One kind of definition. Subclasses name the fields and send the requests."""

    name: ClassVar[str]
    """Key of the section in the document."""
    noun: ClassVar[str]
    defaults: ClassVar[Mapping[str, Any]] = {}
    """Default values of fields that an entry may leave out."""
    fixed: ClassVar[frozenset[str]] = frozenset()
    """Fields that cannot be changed. A difference is only reported."""
    created_together: ClassVar[int] = 1
    """Maximum number of entries that one request creates."""
    deleted_together: ClassVar[int] = 1
    """Maximum number of entries that one request deletes."""
    creation_note: ClassVar[str] = ""
    deletion_note: ClassVar[str] = ""

    @abstractmethod
    async def read(self, reading: DefinitionReading) -> list[Entry]:
        """Read the entries from the cluster, without those that the user may not see."""

    async def create_each(self, cluster: ClusterCalls, entries: Sequence[Entry]) -> Outcomes:
        """Create up to `created_together` entries."""
        return [await _outcome(self.create(cluster, entry)) for entry in entries]

    async def delete_each(self, cluster: ClusterCalls, entries: Sequence[Entry]) -> Outcomes:
        """Delete up to `deleted_together` entries."""
        return [await _outcome(self.delete(cluster, entry)) for entry in entries]

    async def check_each(self, cluster: ClusterCalls, entries: Sequence[Entry]) -> Outcomes:
        """Ask the cluster whether it would create up to `created_together` entries, and create none."""
        return [None] * len(entries)

    @abstractmethod
    async def create(self, cluster: ClusterCalls, entry: Entry) -> None: ...

    async def change(self, cluster: ClusterCalls, step: ApplyStep) -> None:
        """Carry out the changes of a step. Sections whose entries never change do not implement this."""
        raise NotImplementedError

    @abstractmethod
    async def delete(self, cluster: ClusterCalls, entry: Entry) -> None: ...

    @abstractmethod
    def rights(self, step: ApplyStep) -> Iterator[Right]:
        """Rights that a user needs to carry out a step."""

    def identity(self, entry: Entry) -> str:
        return str(entry["name"])

    def normal(self, entry: Entry) -> Entry:
        """Entry of a document in the form that `read` returns."""
        return entry

    def problem(self, entry: Entry) -> str:
        """Reason why an entry cannot be applied, found without a request to the cluster; empty if there is none."""
        return ""

    def order(self, entry: Entry) -> Any:
        """Sort key of entries. An entry must sort after the entries that it needs."""
        return self.identity(entry)

    def settings(self, entry: Entry) -> Mapping[str, Any]:
        """Fields of an entry that are compared, without those that identify it."""
        return {name: value for name, value in entry.items() if name != "name"}

    def plan(self, present: Sequence[Entry], wanted: Sequence[Entry], prune: bool) -> Iterator[ApplyStep]:
        """Steps from the present entries to the wanted ones, deletions last."""
        known = {self.identity(entry): entry for entry in present}
        named = {self.identity(entry): entry for entry in wanted}
        for entry in sorted(named.values(), key=self.order):
            name = self.identity(entry)
            if name not in known:
                yield ApplyStep(
                    "create", self.name, name, self.text("create", name) + self.creation_note, entry
                )
            else:
                yield from self.differences(name, known[name], entry, prune)
        if prune:
            for entry in sorted(known.values(), key=self.order, reverse=True):
                name = self.identity(entry)
                if name not in named:
                    yield ApplyStep(
                        "delete", self.name, name, self.text("delete", name) + self.deletion_note, entry
                    )

    def differences(self, name: str, present: Entry, wanted: Entry, prune: bool) -> Iterator[ApplyStep]:
        """Steps for an entry that exists on both sides."""
        changes = self.changes(self.settings(present), self.settings(wanted), prune)
        for each in sorted(self.fixed & changes.keys()):
            change = changes.pop(each)
            text = f"{self.noun} {name} has {each} {shown(change.old)}, not {shown(change.new)}{self.way_out(each)}"
            yield ApplyStep("differs", self.name, name, text, wanted, {each: change})
        if changes:
            listed = ", ".join(f"{each} {change}" for each, change in changes.items())
            yield ApplyStep(
                "change", self.name, name, f"{self.text('change', name)}: {listed}", wanted, changes
            )

    def way_out(self, field_name: str) -> str:
        """Advice to add to the report of a field that cannot be changed."""
        return f"; delete the {self.noun} first"

    def changes(
        self, present: Mapping[str, Any], wanted: Mapping[str, Any], prune: bool
    ) -> dict[str, FieldChange]:
        """Changed fields by name. A field that the document leaves out stays or, with `prune`, returns to its
        default.
        """
        full = {**self.defaults, **present}
        found = {
            name: FieldChange(full.get(name), value)
            for name, value in sorted(wanted.items())
            if full.get(name) != value
        }
        if prune:
            for name in sorted(present.keys() - wanted.keys()):
                if present[name] != self.defaults.get(name):
                    found[name] = FieldChange(present[name], self.defaults.get(name))
        return found

    def text(self, verb: str, name: str) -> str:
        return f"{verb} {self.noun} {name}" if name else f"{verb} {self.noun}"


async def _outcome(request: Awaitable[None]) -> BrokerError | None:
    try:
        await request
    except BrokerError as error:
        return error
    return None


def shown(value: Any) -> str:
    """Value of a field as text for people."""
    if isinstance(value, bool):
        return str(value).lower()
    return value if isinstance(value, str) and value else repr(value)
