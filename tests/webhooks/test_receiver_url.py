"""URLs of receivers and the addresses that webhooks may connect to."""

from __future__ import annotations

import pytest

from penstock.config.address_rules import AddressRules, parse_address_rules
from penstock.webhooks.receiver_url import InvalidUrl, parse_url, redirected


@pytest.mark.parametrize(
    ("text", "authority", "port", "target"),
    [
        ("https://example.com", "example.com", 443, "/"),
        ("http://Example.com:8080/a?b=c", "example.com:8080", 8080, "/a?b=c"),
        ("https://[2606:4700::1]:444/x", "[2606:4700::1]:444", 444, "/x"),
        ("http://[2606:4700::1]/", "[2606:4700::1]", 80, "/"),
    ],
)
def test_url_has_host_port_and_target(text: str, authority: str, port: int, target: str) -> None:
    found = parse_url(text)
    assert (found.authority, found.port, found.target) == (authority, port, target)
    assert parse_url(str(found)) == found


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("file:///etc/passwd", "scheme"),
        ("ftp://example.com/", "scheme"),
        ("example.com/hook", "scheme"),
        ("https://user:hunter2@example.com/", "credentials"),
        ("https://user@example.com/", "credentials"),
        ("https://user:pa#hunter2@example.com/", "malformed"),
        ("https://user:hunter2#pa@example.com/", "malformed"),
        ("https:///path", "host"),
        ("https://exa mple.com/", "percent-encoded"),
        ("https://example.com/\r\nx: y", "percent-encoded"),
        ("https://bücher.example/", "percent-encoded"),
        ("https://example.com:0/", "port"),
        ("https://example.com:99999/", "malformed"),
        ("https://example.com/#part", "fragment"),
        ("https://[::1/", "malformed"),
        ("", "empty"),
        ("https://example.com/" + "x" * 3_000, "characters"),
    ],
)
def test_bad_url_is_refused_with_a_reason(text: str, reason: str) -> None:
    with pytest.raises(InvalidUrl, match=reason) as refused:
        parse_url(text)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "127.8.8.8",
        "0.0.0.0",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "224.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "fe80::1",
        "fe80::1%eth0",
        "fc00::1",
        "ff02::1",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "64:ff9b::7f00:1",
        "2002:7f00:1::",
        "nonsense",
    ],
)
def test_special_addresses_are_refused(address: str) -> None:
    assert not AddressRules().allows(address)


@pytest.mark.parametrize("address", ["93.184.216.34", "2606:4700::1", "64:ff9b::5db8:d822"])
def test_public_addresses_are_allowed(address: str) -> None:
    assert AddressRules().allows(address)


def test_setting_allows_networks_or_everything() -> None:
    loopback = parse_address_rules("127.0.0.0/8, ::1/128")
    assert loopback.allows("127.0.0.1")
    assert loopback.allows("::1")
    assert loopback.allows("93.184.216.34")
    assert not loopback.allows("169.254.169.254")
    assert loopback.choose(["10.0.0.1", "127.0.0.1"]) == "127.0.0.1"
    assert loopback.choose(["10.0.0.1"]) is None
    assert parse_address_rules("true").allows("10.0.0.1")
    assert not parse_address_rules("false").allows("10.0.0.1")
    with pytest.raises(ValueError, match="many"):
        parse_address_rules("many")


def test_redirect_keeps_tls() -> None:
    start = parse_url("https://example.com/a/b")
    assert str(redirected(start, "../c")) == "https://example.com/c"
    assert redirected(start, "https://other.example:444/").port == 444
    for location in ("http://example.com/", "file:///etc/passwd", "https://u:p@example.com/"):
        with pytest.raises(InvalidUrl):
            redirected(start, location)
