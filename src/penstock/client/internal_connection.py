"""Connections of the internal client, which sends the requests that librdkafka cannot send.

The connection settings are the same as librdkafka's: `config` by librdkafka's names, else the environment.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.client.bootstrap import DEFAULT_BOOTSTRAP, VARIABLE
from penstock.client.errors import InvalidSetting

if TYPE_CHECKING:
    from penstock.internal_client.client import InternalClient

_ADDRESSES = ("bootstrap.servers", "metadata.broker.list")
_SECURITY = ("security.", "sasl.", "ssl.")


@dataclass(frozen=True, slots=True)
class InternalConnection:
    bootstrap: str | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    """The user's settings by librdkafka's names. Settings that do not concern connections have no effect here."""

    def open(self, client_id: str, timeout_s: float) -> InternalClient:
        """Create a client, which connects at its first request. Raises InvalidSetting."""
        # Clients that never open such a connection do not import the modules of brokers.
        from penstock.errors import ConfigError
        from penstock.internal_client.client import InternalClient
        from penstock.internal_client.client_security import ClientSecurity

        given = next((self.config[name] for name in _ADDRESSES if name in self.config), self.bootstrap)
        try:
            if any(name.startswith(_SECURITY) for name in self.config):
                security = ClientSecurity.from_librdkafka(self.config)
            else:
                security = ClientSecurity.from_environment(os.environ)
            chosen = given or os.environ.get(VARIABLE) or DEFAULT_BOOTSTRAP
            return InternalClient.to(chosen, client_id, timeout_s, security=security)
        except ConfigError as error:
            raise InvalidSetting(str(error)) from None
        except ValueError as error:
            raise InvalidSetting(f"{error!s} is not HOST:PORT") from None
