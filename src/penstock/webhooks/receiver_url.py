"""URLs of webhook receivers. Pure.

`config/address_rules.py` decides which addresses webhooks may connect to; it is asked when a connection is made.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple
from urllib.parse import urljoin, urlsplit

MAX_URL_CHARACTERS: Final = 2_048
DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_HOST = re.compile(r"[A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]+\]", re.ASCII)
_VISIBLE = re.compile(r"[\x21-\x7e]+", re.ASCII)


class InvalidUrl(ValueError):
    """The text is not a URL that a webhook can call."""


class Receiver(NamedTuple):
    """The parts of a URL that a call needs."""

    scheme: str
    host: str
    """Name or address, without brackets."""
    port: int
    target: str
    """Path and query."""

    @property
    def authority(self) -> str:
        """Value of the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.target}"


def parse_url(text: str) -> Receiver:
    """Parse the URL of a receiver; raises InvalidUrl with the reason, without the credentials that the URL may have."""
    if len(text) > MAX_URL_CHARACTERS:
        raise InvalidUrl(f"the URL has {len(text)} characters; {MAX_URL_CHARACTERS} are allowed")
    if not _VISIBLE.fullmatch(text):
        raise InvalidUrl("the URL is empty, or has characters that must be percent-encoded")
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:  # its text may have a part of a password
        raise InvalidUrl("the URL is malformed: its address or port is not valid") from None
    if parts.scheme not in DEFAULT_PORTS:
        raise InvalidUrl(f"the scheme {parts.scheme[:20]!r} is not http or https")
    if "@" in parts.netloc:
        raise InvalidUrl("the URL has credentials; receivers check the signature instead")
    host = parts.netloc if port is None else parts.netloc.rpartition(":")[0]
    if port == 0 or not _HOST.fullmatch(host.rstrip(":")):
        raise InvalidUrl("the URL needs a host name or an address, and a port between 1 and 65535 if any")
    if parts.fragment:
        raise InvalidUrl("the URL has a fragment, which servers never see")
    path = parts.path or "/"
    target = f"{path}?{parts.query}" if parts.query else path
    name = host.rstrip(":").strip("[]").lower()
    return Receiver(parts.scheme, name, port or DEFAULT_PORTS[parts.scheme], target)


def redirected(receiver: Receiver, location: str) -> Receiver:
    """Receiver that a redirect leads to; raises InvalidUrl if `location` is invalid or goes from https to http."""
    found = parse_url(urljoin(str(receiver), location))
    if receiver.scheme == "https" and found.scheme != "https":
        raise InvalidUrl("the redirect goes from https to http")
    return found
