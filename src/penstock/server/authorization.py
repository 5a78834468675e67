"""Authorizer of a broker by access control lists, and its modes.

Decisions come from the cluster image alone, so they continue while the coordination store cannot be reached.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.cluster.image import ClusterImage, StoredAcls
from penstock.cluster.internal_topics import AUDIT_TOPIC
from penstock.config import (
    ADMIN_USER,
    ALLOW_EVERYONE_IF_NO_ACL_FOUND,
    AUDIT_LOG,
    AUDIT_LOG_MAX_BYTES,
    AUDIT_LOG_MAX_FILES,
    AUTHORIZATION_MODE,
    HTTP_AUTHENTICATION_ENABLE,
    SSL_CLIENT_AUTH,
    SUPER_USERS,
    AuthorizationMode,
    BrokerConfig,
    ClientAuthentication,
)
from penstock.observability.logs import Logger
from penstock.security.acl import Operation, Principal, ResourcePattern, ResourceType
from penstock.security.acl_index import AclIndex
from penstock.security.acl_policy import AclPolicy
from penstock.server.audit import AuditLog, Send, Write
from penstock.server.audit_file import AuditFile, write_to_standard_error
from penstock.server.environment import Environment
from penstock.server.refusals import Refusals
from penstock.server.security import BROKER, AllowAll, Authorizer


def mode_of(config: BrokerConfig) -> AuthorizationMode:
    """Authorization mode in force. Without the setting `authorization.mode` it is `enforce` if clients authenticate,
    else `off`.
    """
    mode = config[AUTHORIZATION_MODE]
    if mode is not None:
        return mode
    return AuthorizationMode.ENFORCE if _authenticates(config) else AuthorizationMode.OFF


def _authenticates(config: BrokerConfig) -> bool:
    if config[HTTP_AUTHENTICATION_ENABLE]:
        return True
    for listener in config.listeners:
        asks = config.for_listener(listener.name)[SSL_CLIENT_AUTH] is ClientAuthentication.REQUIRED
        if listener.protocol.has_sasl or (listener.protocol.has_tls and asks):
            return True
    return False


def super_users(config: BrokerConfig) -> set[str]:
    """Principals that may do everything, as text like `User:admin`."""
    admin = config[ADMIN_USER]
    return {str(BROKER), *config[SUPER_USERS], *([] if admin is None else [f"User:{admin}"])}


def _open_audit(config: BrokerConfig, environment: Environment, log: Logger) -> AuditLog | None:
    destination = config[AUDIT_LOG]
    if destination == "off":
        return None
    write: Write | None = write_to_standard_error
    if destination == AUDIT_TOPIC:
        write = None  # the broker names the topic when it can write to it
    elif destination != "stderr":
        write = AuditFile(destination, config[AUDIT_LOG_MAX_BYTES], config[AUDIT_LOG_MAX_FILES]).write
    return AuditLog(write, environment.clock, environment.threads, log)


class AclAuthorizer(Authorizer):
    """Authorizer of the modes `report` and `enforce`."""

    def __init__(self, policy: AclPolicy, refusals: Refusals, *, enforces: bool) -> None:
        self._remembered = policy.remembered
        self._permitted = policy.permitted
        self._permits_any = policy.permits_any
        self._refusals = refusals
        self._enforces = enforces

    def authorize(
        self, principal: Principal, host: str, operation: Operation, kind: ResourceType, name: str
    ) -> bool:
        bits = self._remembered[kind].get((principal, host, name))
        if bits is None:
            bits = self._permitted(principal, host, kind, name)
        if bits >> operation & 1:
            return True
        self._refusals.record(principal, host, operation, kind, name, self._enforces)
        return not self._enforces

    def shows(
        self, principal: Principal, host: str, operation: Operation, kind: ResourceType, name: str
    ) -> bool:
        return not self._enforces or bool(self._permitted(principal, host, kind, name) >> operation & 1)

    def has_right(
        self, principal: Principal, host: str, operation: Operation, kind: ResourceType, name: str
    ) -> bool:
        return bool(self._permitted(principal, host, kind, name) >> operation & 1)

    def has_right_on_any(
        self, principal: Principal, host: str, operation: Operation, kind: ResourceType
    ) -> bool:
        return self._permits_any(principal, host, operation, kind)


class Authorization:
    """Policy of a broker, kept in step with the cluster image and the configuration."""

    def __init__(self, config: BrokerConfig, environment: Environment, log: Logger) -> None:
        self.audit = _open_audit(config, environment, log)
        """The audit log; None if there is none."""
        self.refusals = Refusals(environment.clock, log, self.audit)
        self.policy = AclPolicy(AclIndex(), (), allows_unruled=False)
        self._acls: Mapping[ResourcePattern, StoredAcls] = {}
        self._config: BrokerConfig | None = None
        self.changes = 0
        """Number of times the policy has changed."""

    def start_audit(self, send: Send) -> None:
        """Send the audit log to its topic, if that is its destination. Called once the broker can write to topics."""
        if self.audit is not None and self.audit.needs_destination:
            self.audit.send_to(send)

    def follow(self, config: BrokerConfig, image: ClusterImage, current: Authorizer) -> Authorizer:
        """Apply changes of the configuration and of the access control lists, and return the authorizer to use from now
        on.
        """
        self._apply_acls(image.acls)
        if config is self._config:
            return current
        self._config = config
        self.changes += 1
        self.policy.configure(super_users(config), allows_unruled=config[ALLOW_EVERYONE_IF_NO_ACL_FOUND])
        mode = mode_of(config)
        if mode is AuthorizationMode.OFF:
            return AllowAll()
        return AclAuthorizer(self.policy, self.refusals, enforces=mode is AuthorizationMode.ENFORCE)

    def _apply_acls(self, after: Mapping[ResourcePattern, StoredAcls]) -> None:
        before = self._acls
        self._acls = after
        if before is after:
            return
        self.changes += 1
        for resource, stored in after.items():
            if before.get(resource) is not stored:
                self.policy.put(resource, stored.entries)
        for resource in before.keys() - after.keys():
            self.policy.put(resource, ())
