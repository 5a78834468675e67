"""TLS contexts from settings: certificates, keys and trusted authorities are read from PEM files.

Reading takes milliseconds, so brokers do it in a thread pool. A certificate that has expired, does not match
its key or cannot be read raises ConfigError and is never used.
"""

from __future__ import annotations

import hashlib
import os
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from penstock.config import (
    SSL_CIPHER_SUITES,
    SSL_CLIENT_AUTH,
    SSL_CRL_LOCATION,
    SSL_ENABLED_PROTOCOLS,
    SSL_ENDPOINT_IDENTIFICATION_ALGORITHM,
    SSL_KEY_PASSWORD,
    SSL_KEYSTORE_KEY_LOCATION,
    SSL_KEYSTORE_LOCATION,
    SSL_TRUSTSTORE_LOCATION,
    ClientAuthentication,
    Option,
    TlsVersion,
)
from penstock.errors import ConfigError
from penstock.security.subject import format_subject

STRONG_SUITES = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""Cipher suites of TLS 1.2 with forward secrecy and authenticated encryption."""
_PEM_START, _PEM_END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
_VERSIONS = {TlsVersion.TLS_1_2: ssl.TLSVersion.TLSv1_2, TlsVersion.TLS_1_3: ssl.TLSVersion.TLSv1_3}
_VERIFY = {
    ClientAuthentication.NONE: ssl.CERT_NONE,
    ClientAuthentication.REQUESTED: ssl.CERT_OPTIONAL,
    ClientAuthentication.REQUIRED: ssl.CERT_REQUIRED,
}

T = TypeVar("T")


class Values(Protocol):
    """Configuration of a broker or of one listener."""

    def __getitem__(self, option: Option[T], /) -> T: ...


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """TLS settings of one listener, or of the connections to other brokers."""

    certificate: str | None = None
    key: str | None = None
    key_password: str | None = None
    authorities: str | None = None
    revocations: str | None = None
    client_auth: ClientAuthentication = ClientAuthentication.NONE
    versions: tuple[TlsVersion, ...] = (TlsVersion.TLS_1_2, TlsVersion.TLS_1_3)
    suites: str | None = None
    checks_names: bool = True

    @classmethod
    def of(cls, config: Values) -> TlsSettings:
        return cls(
            config[SSL_KEYSTORE_LOCATION],
            config[SSL_KEYSTORE_KEY_LOCATION],
            config[SSL_KEY_PASSWORD],
            config[SSL_TRUSTSTORE_LOCATION],
            config[SSL_CRL_LOCATION],
            config[SSL_CLIENT_AUTH],
            config[SSL_ENABLED_PROTOCOLS],
            config[SSL_CIPHER_SUITES],
            config[SSL_ENDPOINT_IDENTIFICATION_ALGORITHM] is not None,
        )

    @property
    def files(self) -> tuple[str, ...]:
        named = (self.certificate, self.key, self.authorities, self.revocations)
        return tuple(file for file in named if file is not None)

    def stamp(self) -> Mapping[str, tuple[int, ...]]:
        """Stamp of each file, by path, which changes when the file is written or replaced."""
        return dict(_stamps(self.files))


def _stamps(files: tuple[str, ...]) -> Iterator[tuple[str, tuple[int, ...]]]:
    for file in files:
        try:
            status = os.stat(file)
        except OSError as error:
            yield file, (-(error.errno or 1),)
        else:
            yield file, (status.st_mtime_ns, status.st_size, status.st_ino)


@dataclass(frozen=True, slots=True)
class LoadedTls:
    """TLS context, with the properties of its certificate."""

    context: ssl.SSLContext
    fingerprint: bytes = b""
    """SHA-256 of the certificate; empty for a client without one."""
    expires_ms: int = 0
    """Time at which the certificate expires, in milliseconds since the epoch; 0 without a certificate."""


def load_server(settings: TlsSettings, now_ms: int) -> LoadedTls:
    """TLS context of a listener. Raises ConfigError."""
    if settings.certificate is None:
        raise ConfigError(
            "ssl.keystore.location is not set: a listener with TLS needs a certificate; "
            "`penstock tls init` and `penstock tls issue` make one"
        )
    if settings.client_auth is not ClientAuthentication.NONE and settings.authorities is None:
        raise ConfigError(
            f"ssl.client.auth={settings.client_auth}: set ssl.truststore.location to the "
            "CA certificates of client certificates"
        )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = _VERIFY[settings.client_auth]
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    context.num_tickets = 1
    return _load(context, settings, now_ms)


def load_client(settings: TlsSettings, now_ms: int) -> LoadedTls:
    """TLS context of connections to brokers. Raises ConfigError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = settings.checks_names
    if settings.authorities is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    return _load(context, settings, now_ms)


def _load(context: ssl.SSLContext, settings: TlsSettings, now_ms: int) -> LoadedTls:
    context.minimum_version = min(_VERSIONS[version] for version in settings.versions)
    context.maximum_version = max(_VERSIONS[version] for version in settings.versions)
    context.options |= ssl.OP_NO_COMPRESSION
    try:
        context.set_ciphers(settings.suites or STRONG_SUITES)
    except ssl.SSLError:
        raise ConfigError(
            f"ssl.cipher.suites={settings.suites!r}: OpenSSL knows no cipher suite of this list"
        ) from None
    if settings.authorities is not None:
        _load_authorities(context, settings.authorities, "ssl.truststore.location")
    if settings.revocations is not None:
        _load_authorities(context, settings.revocations, "ssl.crl.location")
        context.verify_flags |= ssl.VerifyFlags.VERIFY_CRL_CHECK_CHAIN
    if settings.certificate is None:
        return LoadedTls(context)
    _load_pair(context, settings)
    own = _first_certificate(settings.certificate)
    expires_ms = int(ssl.cert_time_to_seconds(str(own["notAfter"])) * 1000)
    if expires_ms <= now_ms:
        raise ConfigError(f"the certificate in {settings.certificate} expired at {own['notAfter']}")
    return LoadedTls(context, hashlib.sha256(own["der"]).digest(), expires_ms)


def _load_authorities(context: ssl.SSLContext, file: str, setting: str) -> None:
    try:
        context.load_verify_locations(cafile=file)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"{setting}={file!r} cannot be used: {_explain(error)}") from None


def _load_pair(context: ssl.SSLContext, settings: TlsSettings) -> None:
    certificate = settings.certificate
    assert certificate is not None
    check_private(settings.key or certificate)
    try:
        # Without a password, OpenSSL would ask for one at the terminal.
        context.load_cert_chain(certificate, settings.key, lambda: settings.key_password or "")
    except (OSError, ssl.SSLError) as error:
        where = f"{certificate} and {settings.key}" if settings.key else certificate
        raise ConfigError(
            f"the certificate and key in {where} cannot be used: {_explain(error)}; the file must have a PEM "
            "certificate chain, and the private key that belongs to it"
        ) from None


def check_private(file: str) -> None:
    """Raise ConfigError if other users of the machine can read this file, which contains a secret."""
    try:
        status = os.stat(file)
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}") from None
    mode = status.st_mode
    # Mounted secrets often belong to root and to the group of the process.
    if mode & (0o007 if status.st_uid == 0 else 0o077):
        raise ConfigError(
            f"{file} holds a secret and can be read by other users (mode {mode & 0o777:o}); run `chmod 600 {file}`"
        )


def read_subject(file: str) -> str:
    """Subject of the first certificate in a PEM file. Raises ConfigError."""
    check_private(file)
    try:
        return format_subject(_first_certificate(file)["der"])
    except (OSError, ValueError) as error:
        raise ConfigError(f"the certificate in {file} cannot be read: {error}") from None


def _first_certificate(file: str) -> dict[str, Any]:
    """Fields of the first certificate in a PEM file, with its DER bytes."""
    with open(file) as opened:
        text = opened.read()
    start, end = text.find(_PEM_START), text.find(_PEM_END)
    der = ssl.PEM_cert_to_DER_cert(text[start : end + len(_PEM_END)])
    return {"der": der, "notAfter": _not_after(der)}


def _not_after(der: bytes) -> str:
    from cryptography import x509

    expires = x509.load_der_x509_certificate(der).not_valid_after_utc
    return expires.strftime("%b %d %H:%M:%S %Y GMT")


def _explain(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return str(error.reason or "no PEM content").replace("_", " ").lower()
    return error.strerror or str(error)
