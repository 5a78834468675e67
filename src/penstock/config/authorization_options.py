"""Broker options for authorization: the permissions of users."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from penstock.config.options import Option, OptionGroup
from penstock.config.types import Boolean, Choice, Integer, Kind, Optional, Text


class AuthorizationMode(StrEnum):
    OFF = "off"
    REPORT = "report"
    ENFORCE = "enforce"


@dataclass(frozen=True, slots=True)
class Principals:
    """Principals such as `User:alice`, separated by semicolons, as Kafka writes them."""

    @property
    def kind(self) -> Kind:
        return Kind.STRING

    @property
    def expected(self) -> str:
        return "users as User:NAME, separated by semicolons"

    def parse(self, text: str) -> tuple[str, ...]:
        principals = tuple(each.strip() for each in text.split(";") if each.strip())
        for principal in principals:
            kind, _, name = principal.partition(":")
            if kind != "User" or not name or name == "*":
                raise ValueError(text)
        return principals

    def format(self, value: tuple[str, ...]) -> str:
        return ";".join(value)


AUTHORIZATION = OptionGroup("Authorization")
AUTHORIZATION_MODE: Option[AuthorizationMode | None] = AUTHORIZATION.option(
    "authorization.mode",
    Optional(Choice(AuthorizationMode)),
    None,
    "Whether access control lists are applied. `off`: clients may do everything. `report`: the same, and requests that "
    "`enforce` would refuse are recorded (`penstock acl report`). `enforce`: requests without a right are refused. "
    "Without a value `enforce` if clients of a listener or of HTTP authenticate, else `off`.",
    dynamic=True,
)
SUPER_USERS: Option[tuple[str, ...]] = AUTHORIZATION.option(
    "super.users",
    Principals(),
    (),
    "Users that may do everything, whatever the access control lists say, as `User:alice;User:bob`. The user of "
    "`admin.user` is one of them.",
)
ALLOW_EVERYONE_IF_NO_ACL_FOUND: Option[bool] = AUTHORIZATION.option(
    "allow.everyone.if.no.acl.found",
    Boolean(),
    False,
    "Whether everything is allowed on a resource that no access control list names or covers.",
)

AUDIT = OptionGroup("Audit")
AUDIT_LOG: Option[str] = AUDIT.option(
    "audit.log",
    Text(),
    "off",
    "Destination of the audit log: `off`, `stderr`, the topic `__audit_log`, or the path of a file. The log has a JSON "
    "line for each change of topics, configs, users, rules, quotas, offsets and reassignments, and samples of failed "
    "logins, of refused requests and of offsets that are committed without a membership.",
)
AUDIT_LOG_MAX_BYTES: Option[int] = AUDIT.option(
    "audit.log.max.bytes", Integer(1_000), 100_000_000, "Size at which the file of the audit log is rotated."
)
AUDIT_LOG_MAX_FILES: Option[int] = AUDIT.option(
    "audit.log.max.files", Integer(1, 1_000), 10, "Number of rotated files of the audit log that are kept."
)
