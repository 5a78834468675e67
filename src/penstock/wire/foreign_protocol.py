"""Recognition of ports that do not speak the Kafka protocol, by the first bytes of the response to a request.

An HTTP server responds in its own protocol, and a Kafka client would take these bytes for the size of a huge
frame and wait for the rest of it. Many TLS listeners close the connection without a response, as a stopping
broker does; a TLS ClientHello on a second connection tells the two apart.
"""

from __future__ import annotations

from contextlib import suppress

PREFIX_BYTES = 5
"""Number of first bytes that are sufficient to recognise every protocol known here."""
HTTP = "this port speaks HTTP, not the Kafka protocol; give the broker's Kafka port, 9092 unless it was set"
TLS = (
    "this port speaks TLS, and the connection is plaintext; give the broker's plaintext port, or use TLS: "
    "set PENSTOCK_CA for the penstock command, or security.protocol=SSL or SASL_SSL for Kafka clients"
)
OTHER = "this port does not speak the Kafka protocol; give the broker's Kafka port"
_TLS_RECORDS = (b"\x15\x03", b"\x16\x03")
"""The first bytes of a TLS alert and of a TLS handshake message."""


def foreign_protocol(received: bytes) -> str | None:
    """Error message for the user if the first received bytes are HTTP or TLS; None for any other bytes."""
    if received.startswith(b"HTTP/"):
        return HTTP
    return TLS if received.startswith(_TLS_RECORDS) else None


def tls_client_hello() -> bytes:
    """First message of a TLS client, which a TLS listener answers with a TLS record."""
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    outgoing = ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), outgoing).do_handshake()
    return outgoing.read()
