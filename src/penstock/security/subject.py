"""Subject of a certificate as text, in the format of Java (RFC 2253), which Kafka's mapping rules expect."""

from __future__ import annotations

_NAMES = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
"""Attribute types that have a name in RFC 2253. Others are written as object identifier and encoded value."""
_ESCAPED = frozenset(',+"\\<>;')


def format_subject(certificate: bytes) -> str:
    """Subject of a DER certificate as text, beginning with the most specific part."""
    from cryptography import x509

    subject = x509.load_der_x509_certificate(certificate).subject
    return ",".join(
        "+".join(_format_attribute(attribute) for attribute in part) for part in reversed(subject.rdns)
    )


def _format_attribute(attribute: object) -> str:
    oid: str = attribute.oid.dotted_string  # type: ignore[attr-defined]
    value: str | bytes = attribute.value  # type: ignore[attr-defined]
    name = _NAMES.get(oid)
    if name is not None and isinstance(value, str):
        return f"{name}={_escape(value)}"
    content = value.encode() if isinstance(value, str) else value
    tag: int = attribute._type.value  # type: ignore[attr-defined]
    return f"{oid}=#{(bytes([tag]) + _length(len(content)) + content).hex()}"


def _length(count: int) -> bytes:
    """Encode a length in DER."""
    if count < 128:
        return bytes([count])
    encoded = count.to_bytes((count.bit_length() + 7) // 8, "big")
    return bytes([0x80 | len(encoded)]) + encoded


def _escape(value: str) -> str:
    escaped = "".join(f"\\{character}" if character in _ESCAPED else character for character in value)
    if escaped[:1] in ("#", " "):
        escaped = f"\\{escaped}"
    if escaped.endswith(" ") and len(value) > 1:
        escaped = f"{escaped[:-1]}\\ "
    return escaped.replace("\x00", "\\00")
