"""First user of a single broker, written into the metadata of its data directory while the broker is stopped.

The first user in a directory becomes the administrator, because without an administrator no user could be given
permissions.
"""

from __future__ import annotations

import asyncio
import fcntl
import random
from pathlib import Path

from penstock.cli.failures import Failure
from penstock.cluster import znodes
from penstock.cluster.acl_nodes import encode_acls, node_name
from penstock.cluster.controller_election import initialize_store
from penstock.cluster.coordination import Create, NodeExists, Set
from penstock.cluster.embedded import EmbeddedStore
from penstock.cluster.user_nodes import encode_user
from penstock.cluster.users import check_name
from penstock.errors import BrokerError
from penstock.security.acl import (
    CLUSTER_NAME,
    WILDCARD,
    AccessControlEntry,
    Operation,
    Permission,
    ResourcePattern,
    ResourceType,
)
from penstock.security.scram import (
    MIN_ITERATIONS,
    SALT_BYTES,
    ScramMechanism,
    record_of,
    salted_password,
)
from penstock.security.user import User
from penstock.server.environment import STORE_FILE
from penstock.threads import ThreadPools

LOCK_FILE = "lock"


def create_offline(data_dir: Path, name: str, password: str) -> None:
    """Create a user, or change its password, while no broker uses the directory. Raises Failure.

    The first user of the directory gets the rules of an administrator.
    """
    try:
        check_name(name)
    except BrokerError as error:
        raise Failure(f"user {name!r}: {error}", "Give another name.") from None
    data_dir.mkdir(parents=True, exist_ok=True)
    with (data_dir / LOCK_FILE).open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise Failure(
                f"a broker uses {data_dir}", "Run the command with --bootstrap, or stop the broker first."
            ) from None
        asyncio.run(_write(data_dir / STORE_FILE, make_user(name, password)))


def make_user(name: str, password: str) -> User:
    """Return a user with credentials for all SCRAM mechanisms."""
    system = random.SystemRandom()
    scram = {}
    for mechanism in ScramMechanism:
        salt = system.randbytes(SALT_BYTES)
        salted = salted_password(mechanism, password, salt, MIN_ITERATIONS)
        scram[mechanism] = record_of(mechanism, salted, salt, MIN_ITERATIONS)
    return User(name, scram, f"{system.getrandbits(64):016x}")


def administrator_rules(name: str) -> list[Create]:
    """Return the writes that create the rules which allow a user everything."""
    everything = [
        ResourcePattern(kind, CLUSTER_NAME if kind is ResourceType.CLUSTER else WILDCARD)
        for kind in ResourceType
    ]
    data = encode_acls([AccessControlEntry(f"User:{name}", WILDCARD, Operation.ALL, Permission.ALLOW)])
    return [Create(znodes.acls_path(node_name(resource)), data) for resource in everything]


async def _write(path: Path, user: User) -> None:
    threads = ThreadPools()
    store = EmbeddedStore(str(path), threads)
    await store.start()
    try:
        await initialize_store(store, random.SystemRandom())
        node, data = znodes.user_path(user.name), encode_user(user)
        is_first = not await store.children(znodes.USERS) and not await store.children(znodes.ACLS)
        rules = administrator_rules(user.name) if is_first else []
        try:
            await store.multi([Create(node, data), *rules])
        except NodeExists:
            await store.multi([Set(node, data, -1)])
    finally:
        await store.close()
        threads.close()
