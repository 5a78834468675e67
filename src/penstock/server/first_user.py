"""First user of a cluster: created from `admin.user` at the start. Without `admin.user` a log line says how to create a
user.
"""

from __future__ import annotations

from functools import partial

from penstock.cluster.users import CredentialChange
from penstock.config import (
    ADMIN_PASSWORD_FILE,
    ADMIN_USER,
    SASL_ENABLED_MECHANISMS,
    BrokerConfig,
    SaslMechanism,
)
from penstock.errors import ConfigError
from penstock.internal_client.client_security import read_password
from penstock.observability.logs import Logger
from penstock.security.scram import (
    MIN_ITERATIONS,
    SALT_BYTES,
    ScramMechanism,
    record_of,
    salted_password,
)
from penstock.server.context import BrokerContext


async def ensure_first_user(context: BrokerContext, logger: Logger) -> None:
    """Create `admin.user` if the cluster has no user. Raises ConfigError if its password cannot be read."""
    config = context.config
    if context.image.users:
        return
    name = config[ADMIN_USER]
    if name is not None:
        password = await context.threads.run(
            "background", partial(_read_password, config[ADMIN_PASSWORD_FILE])
        )
        changes = await context.threads.run("background", partial(credentials, context, name, password))
        error = (await context.administration.alter_user_credentials(changes))[name]
        if error is not None:
            raise ConfigError(f"admin.user={name!r}: {error}")
        logger.info("first user created", user=name)
    elif _needs_users(config):
        logger.warning(
            "no user exists, so no client can log in; set admin.user and admin.password.file, or stop the broker "
            "and run `penstock user create NAME --data-dir DIR`"
        )


def credentials(context: BrokerContext, name: str, password: str) -> list[CredentialChange]:
    """Credentials of a password for all SCRAM mechanisms. Takes milliseconds of processor time."""
    changes = []
    for mechanism in ScramMechanism:
        salt = context.random.randbytes(SALT_BYTES)
        salted = salted_password(mechanism, password, salt, MIN_ITERATIONS)
        changes.append(CredentialChange(name, mechanism, record_of(mechanism, salted, salt, MIN_ITERATIONS)))
    return changes


def _read_password(file: str | None) -> str:
    if file is None:
        raise ConfigError("admin.password.file is not set: admin.user needs a password")
    return read_password(file)


def _needs_users(config: BrokerConfig) -> bool:
    """True if a listener lets clients log in with the password of a user."""
    for listener in config.listeners:
        mechanisms = config.for_listener(listener.name)[SASL_ENABLED_MECHANISMS]
        if listener.protocol.has_sasl and mechanisms != (SaslMechanism.OAUTHBEARER,):
            return True
    return False
