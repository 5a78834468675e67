"""Certificates of a private authority, for `penstock tls` and `--secure`. Keys are ECDSA P-256, which has the
cheapest handshakes.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_DAYS = 3650
CERTIFICATE_DAYS = 397
_EARLIER = timedelta(minutes=5)
"""Certificates are valid from this much before their creation, for machines whose clocks differ."""


@dataclass(frozen=True, slots=True)
class KeyPair:
    """Certificate and private key as PEM."""

    certificate: bytes
    key: bytes


@dataclass(frozen=True, slots=True)
class CertificateRequest:
    name: str
    """Common name, which is the user name in a client certificate."""
    hosts: tuple[str, ...] = ()
    """Names and addresses of a server; empty for a client certificate."""
    days: int = CERTIFICATE_DAYS


def make_authority(name: str, now_ms: int, days: int = AUTHORITY_DAYS) -> KeyPair:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _name(name)
    usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
    builder = (
        _builder(subject, key.public_key(), now_ms, days)
        .issuer_name(subject)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
    )
    return _pair(builder.sign(key, hashes.SHA256()), key)


def issue(authority: KeyPair, request: CertificateRequest, now_ms: int) -> KeyPair:
    """Issue a certificate. With hosts it is for a server, which may also act as a client; without hosts it is
    for a client.
    """
    issuer = x509.load_pem_x509_certificate(authority.certificate)
    issuer_key = serialization.load_pem_private_key(authority.key, None)
    assert isinstance(issuer_key, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    purposes = [ExtendedKeyUsageOID.CLIENT_AUTH]
    builder = (
        _builder(_name(request.name), key.public_key(), now_ms, request.days)
        .issuer_name(issuer.subject)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False
        )
    )
    if request.hosts:
        purposes.append(ExtendedKeyUsageOID.SERVER_AUTH)
        names = x509.SubjectAlternativeName([_host(host) for host in request.hosts])
        builder = builder.add_extension(names, critical=False)
    builder = builder.add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
    return _pair(builder.sign(issuer_key, hashes.SHA256()), key)


def describe(certificate: bytes) -> dict[str, object]:
    """Fields of the first certificate in a PEM text, to show to people."""
    loaded = x509.load_pem_x509_certificate(certificate)
    try:
        names = loaded.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        hosts = [str(getattr(name, "value", name)) for name in names]
    except x509.ExtensionNotFound:
        hosts = []
    return {
        "subject": loaded.subject.rfc4514_string(),
        "issuer": loaded.issuer.rfc4514_string(),
        "hosts": hosts,
        "valid_from": loaded.not_valid_before_utc.isoformat(),
        "valid_until": loaded.not_valid_after_utc.isoformat(),
        "fingerprint": loaded.fingerprint(hashes.SHA256()).hex(),
    }


def _builder(
    subject: x509.Name, key: ec.EllipticCurvePublicKey, now_ms: int, days: int
) -> x509.CertificateBuilder:
    now = datetime.fromtimestamp(now_ms // 1000, UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _EARLIER)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> KeyPair:
    encoding = serialization.Encoding.PEM
    return KeyPair(
        certificate.public_bytes(encoding),
        key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
    )
