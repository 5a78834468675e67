"""Rules for changes of users: AlterUserScramCredentials, access tokens and browser sessions. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from penstock.cluster import znodes
from penstock.cluster.change_list import Scope
from penstock.cluster.coordination import Create, Delete, Operation, Set
from penstock.cluster.image import ClusterImage
from penstock.cluster.metadata_change import MetadataChange
from penstock.cluster.topic_writes import Writes
from penstock.cluster.user_nodes import encode_user
from penstock.errors import BrokerError, ErrorCode
from penstock.security.access_token import MAX_TOKENS, TokenRecord
from penstock.security.scram import (
    MAX_ITERATIONS,
    MAX_NAME_CHARACTERS,
    MIN_ITERATIONS,
    ScramMechanism,
    ScramRecord,
)
from penstock.security.user import User

MAX_USERS = 100_000
MAX_ENDED_SESSIONS = 100


@dataclass(frozen=True, slots=True)
class CredentialChange:
    """Change of one SCRAM credential. A change without a record deletes the credential."""

    user: str
    mechanism: ScramMechanism | None
    """SCRAM mechanism; None if the request has an unknown code."""
    record: ScramRecord | None = None


def alter_credentials(
    image: ClusterImage, changes: Sequence[CredentialChange], credential: str
) -> MetadataChange[dict[str, BrokerError | None]]:
    """Apply all changes of a user or none: a user with one invalid change keeps its credentials."""
    results: dict[str, BrokerError | None] = {}
    operations: list[Operation] = []
    changed: list[str] = []
    for name in dict.fromkeys(change.user for change in changes):
        try:
            before = image.users.get(name, User(name))
            after = _altered(before, [change for change in changes if change.user == name])
            operations.append(write_user(before, replace(after, credential=credential)))
            changed.append(name)
            results[name] = None
        except BrokerError as error:
            results[name] = error
    if len(image.users) + len(changed) > MAX_USERS:
        raise BrokerError(ErrorCode.policy_violation, f"a cluster has at most {MAX_USERS} users")
    return MetadataChange(results, Writes(tuple(operations)), Scope(users=frozenset(changed)))


def _altered(user: User, changes: Sequence[CredentialChange]) -> User:
    check_name(user.name)
    if len({change.mechanism for change in changes}) < len(changes):
        raise BrokerError(
            ErrorCode.duplicate_resource, "A user credential cannot be altered twice in the same request"
        )
    scram = dict(user.scram)
    for change in changes:
        mechanism = change.mechanism
        if mechanism is None:
            raise BrokerError(ErrorCode.unsupported_sasl_mechanism, "Unknown SCRAM mechanism")
        if change.record is None:
            if scram.pop(mechanism, None) is None:
                raise BrokerError(
                    ErrorCode.resource_not_found,
                    "Attempt to delete a user credential that does not exist",
                )
            continue
        _check_iterations(change.record.iterations)
        if not change.record.salt:
            raise BrokerError(ErrorCode.unacceptable_credential, "the salt is empty")
        scram[mechanism] = change.record
    return replace(user, scram=scram)


def set_disabled(image: ClusterImage, name: str, is_disabled: bool, credential: str) -> MetadataChange[None]:
    """Disable or enable a user, which ends its sessions. Nothing changes if the user is in that state already."""
    before = _existing(image, name)
    if before.is_disabled == is_disabled:
        return _change(before, before)
    return _change(before, replace(before, is_disabled=is_disabled, credential=credential))


def add_token(image: ClusterImage, name: str, token_id: str, record: TokenRecord) -> MetadataChange[None]:
    """Add an access token. A repeated request finds the token, with the same id and digest, and succeeds."""
    before = _existing(image, name)
    found = before.tokens.get(token_id)
    if found is not None and found.digest != record.digest:
        raise BrokerError(ErrorCode.duplicate_resource, f"user {name} has a token with the id {token_id}")
    if found is None and len(before.tokens) >= MAX_TOKENS:
        raise BrokerError(
            ErrorCode.policy_violation, f"a user has at most {MAX_TOKENS} tokens; revoke one of them first"
        )
    return _change(before, replace(before, tokens={**before.tokens, token_id: record}))


def remove_token(image: ClusterImage, name: str, token_id: str) -> MetadataChange[None]:
    """Revoke an access token, if the user has it."""
    before = _existing(image, name)
    left = {each: record for each, record in before.tokens.items() if each != token_id}
    return _change(before, replace(before, tokens=left))


def end_session(image: ClusterImage, name: str, session_id: str, expires_ms: int) -> MetadataChange[None]:
    """End a browser session before it expires.

    More than MAX_ENDED_SESSIONS ended sessions would make the user's node too large. The older half of them
    is then replaced by one time, and every session of the user that expires by that time ends. No clock is
    read, because the clocks of brokers may be wrong.
    """
    before = _existing(image, name)
    if before.has_ended(session_id, expires_ms):
        return _change(before, before)
    ended = {**before.ended_sessions, session_id: expires_ms}
    until_ms = before.sessions_ended_until_ms
    if len(ended) > MAX_ENDED_SESSIONS:
        until_ms = sorted(ended.values())[len(ended) // 2]
        ended = {each: end_ms for each, end_ms in ended.items() if end_ms > until_ms}
    return _change(before, replace(before, ended_sessions=ended, sessions_ended_until_ms=until_ms))


def _existing(image: ClusterImage, name: str) -> User:
    user = image.users.get(name)
    if user is None:
        raise BrokerError(ErrorCode.resource_not_found, f"there is no user {name[:MAX_NAME_CHARACTERS]!r}")
    return user


def _change(before: User, after: User) -> MetadataChange[None]:
    operations = () if after == before else (write_user(before, after),)
    return MetadataChange(None, Writes(operations), Scope(users=frozenset([after.name])))


def check_name(name: str) -> None:
    """Raise BrokerError for a name that no user can have."""
    if not name:
        raise BrokerError(ErrorCode.unacceptable_credential, "Username must not be empty")
    if len(name) > MAX_NAME_CHARACTERS or not name.isprintable():
        raise BrokerError(
            ErrorCode.unacceptable_credential,
            f"the name must have at most {MAX_NAME_CHARACTERS} characters, without control characters",
        )


def _check_iterations(iterations: int) -> None:
    if iterations < MIN_ITERATIONS:
        raise BrokerError(ErrorCode.unacceptable_credential, "Too few iterations")
    if iterations > MAX_ITERATIONS:
        raise BrokerError(ErrorCode.unacceptable_credential, "Too many iterations")


def write_user(before: User, after: User) -> Operation:
    """Operation that writes a changed user. A user without SCRAM credentials is removed."""
    path = znodes.user_path(after.name)
    if not after.scram:
        return Delete(path, before.version)
    data = encode_user(after)
    return Create(path, data) if before.version < 0 else Set(path, data, before.version)
