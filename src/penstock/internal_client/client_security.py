"""Security of a client: trusted authority for the brokers' certificates, client certificate, and user.

`PENSTOCK_CA`, `PENSTOCK_CERTIFICATE`, `PENSTOCK_USER` and `PENSTOCK_PASSWORD_FILE` apply to the command line,
the gateway and the Python client alike.
"""

from __future__ import annotations

import base64
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.errors import ConfigError, ErrorCode
from penstock.net.broker_connection import BrokerConnection
from penstock.net.login_network import LoginNetwork
from penstock.net.network import Network
from penstock.net.tls_network import TlsNetwork
from penstock.security.scram import NONCE_BYTES, ScramClient, ScramError, ScramMechanism
from penstock.security.tls_context import TlsSettings, check_private, load_client
from penstock.unreachable import LoginRefused
from penstock.wire.apis import SASL_AUTHENTICATE, SASL_HANDSHAKE

CA, CERTIFICATE, USER, PASSWORD_FILE = (
    "PENSTOCK_CA",
    "PENSTOCK_CERTIFICATE",
    "PENSTOCK_USER",
    "PENSTOCK_PASSWORD_FILE",
)
MECHANISM = ScramMechanism.SHA_512
_HANDSHAKE_VERSION, _AUTHENTICATE_VERSION = 1, 2


@dataclass(frozen=True, slots=True)
class ClientSecurity:
    ca: str | None = None
    """File with the certificate of the authority that signs the brokers' certificates. Connections use TLS if
    it is given.
    """
    certificate: str | None = None
    """File with this client's certificate and key."""
    user: str | None = None
    password: str = field(default="", repr=False)
    key: str | None = None
    """File with the key of the certificate, if the key is in a file of its own."""
    mechanism: ScramMechanism = MECHANISM

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> ClientSecurity:
        """Security from environment variables. Raises ConfigError if a file cannot be used."""
        user = environment.get(USER) or None
        password = ""
        if user is not None:
            password = read_password(environment.get(PASSWORD_FILE))
        return cls(environment.get(CA) or None, environment.get(CERTIFICATE) or None, user, password)

    @classmethod
    def from_librdkafka(cls, settings: Mapping[str, Any]) -> ClientSecurity:
        """Security from librdkafka's settings. Raises ConfigError for settings that this client does not support."""
        protocol = str(settings.get("security.protocol", "plaintext")).upper()
        ca = certificate = key = user = None
        if protocol.endswith("SSL"):
            ca = settings.get("ssl.ca.location")
            certificate, key = settings.get("ssl.certificate.location"), settings.get("ssl.key.location")
            if not ca:
                raise ConfigError(
                    f"security.protocol={protocol} needs ssl.ca.location, the brokers' authority"
                )
        mechanism = MECHANISM
        if protocol.startswith("SASL"):
            mechanism = _mechanism(settings.get("sasl.mechanism", settings.get("sasl.mechanisms", MECHANISM)))
            user = settings.get("sasl.username")
            if not user:
                raise ConfigError(f"security.protocol={protocol} needs sasl.username and sasl.password")
        return cls(ca, certificate, user, str(settings.get("sasl.password", "")), key, mechanism)

    @property
    def is_plaintext(self) -> bool:
        return self.ca is None and self.user is None

    def librdkafka(self) -> dict[str, Any]:
        """The same security as librdkafka's settings; empty for a listener without security."""
        if self.is_plaintext:
            return {}
        protocol = ("SASL_" if self.user is not None else "") + (
            "SSL" if self.ca is not None else "PLAINTEXT"
        )
        settings = {"security.protocol": protocol}
        if self.ca is not None:
            settings["ssl.ca.location"] = self.ca
        if self.certificate is not None:
            settings |= {
                "ssl.certificate.location": self.certificate,
                "ssl.key.location": self.key or self.certificate,
            }
        if self.user is not None:
            settings |= {
                "sasl.mechanism": str(self.mechanism),
                "sasl.username": self.user,
                "sasl.password": self.password,
            }
        return settings

    def network(self, network: Network) -> Network:
        """Network whose connections use TLS and log in, as configured. Raises ConfigError if a file cannot be used."""
        if self.ca is not None:
            context = load_client(TlsSettings(self.certificate, self.key, authorities=self.ca), 0).context
            network = TlsNetwork(network, lambda: context)
        return network if self.user is None else LoginNetwork(network, self._log_in)

    async def _log_in(self, connection: BrokerConnection) -> None:
        assert self.user is not None
        nonce = base64.b64encode(ssl.RAND_bytes(NONCE_BYTES)).decode()
        exchange = ScramClient(self.mechanism, self.user, self.password, nonce)
        response = await connection.request(
            SASL_HANDSHAKE, _HANDSHAKE_VERSION, {"mechanism": str(self.mechanism)}
        )
        if response.error_code != ErrorCode.none:
            raise LoginRefused(f"the broker does not offer {self.mechanism} at this listener")
        try:
            first = await self._authenticate(connection, exchange.first())
            exchange.check(await self._authenticate(connection, exchange.final(first)))
        except ScramError as error:
            raise LoginRefused(str(error)) from None

    async def _authenticate(self, connection: BrokerConnection, message: bytes) -> bytes:
        response = await connection.request(SASL_AUTHENTICATE, _AUTHENTICATE_VERSION, {"auth_bytes": message})
        if response.error_code != ErrorCode.none:
            raise LoginRefused(f"the broker refused the login of {self.user}: wrong user or password")
        return bytes(response.auth_bytes)


def _mechanism(name: str) -> ScramMechanism:
    """SCRAM mechanism of a login. PLAIN is replaced by SCRAM, because brokers store only SCRAM credentials."""
    if name == "PLAIN":
        return MECHANISM
    try:
        return ScramMechanism(name)
    except ValueError:
        raise ConfigError(
            f"sasl.mechanism={name} is not available for this call; use one of {', '.join(ScramMechanism)}"
        ) from None


def read_password(file: str | None) -> str:
    """Read the password in a file, without the final line break. Raises ConfigError."""
    if not file:
        raise ConfigError(f"{PASSWORD_FILE} is not set: name the file with the password of {USER}")
    check_private(file)
    try:
        with open(file) as opened:
            password = opened.read().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the password file {file} cannot be read: {type(error).__name__}") from None
    if not password:
        raise ConfigError(f"the password file {file} is empty")
    return password
