"""Users from the subjects of client certificates: the text of a subject, and Kafka's mapping rules."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from penstock.config.principal_mapping import parse_principal_rules
from penstock.security.subject import format_subject

NOW = datetime(2026, 1, 1, tzinfo=UTC)
KEY = ec.generate_private_key(ec.SECP256R1())


def certificate(*parts: list[tuple[x509.ObjectIdentifier, str]]) -> bytes:
    """Self-signed certificate whose subject has these parts, the most general one first."""
    subject = x509.Name(
        x509.RelativeDistinguishedName(x509.NameAttribute(oid, value) for oid, value in part)
        for part in parts
    )
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(KEY.public_key())
        .serial_number(1)
        .not_valid_before(NOW)
        .not_valid_after(NOW + timedelta(days=1))
        .sign(KEY, hashes.SHA256())
    )
    return made.public_bytes(serialization.Encoding.DER)


CN, OU = NameOID.COMMON_NAME, NameOID.ORGANIZATIONAL_UNIT_NAME
ORGANIZATION, COUNTRY = NameOID.ORGANIZATION_NAME, NameOID.COUNTRY_NAME


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ([[(COUNTRY, "DE")], [(ORGANIZATION, "Acme")], [(CN, "alice")]], "CN=alice,O=Acme,C=DE"),
        ([[(CN, "a,b")]], "CN=a\\,b"),
        ([[(CN, 'q"\\<>;+')]], 'CN=q\\"\\\\\\<\\>\\;\\+'),
        ([[(CN, "#x")]], "CN=\\#x"),
        ([[(CN, " x ")]], "CN=\\ x\\ "),
        ([[(NameOID.EMAIL_ADDRESS, "a@b")]], "1.2.840.113549.1.9.1=#1603614062"),
        ([], ""),
    ],
)
def test_subject_is_written_as_java_writes_it(
    parts: list[list[tuple[x509.ObjectIdentifier, str]]], text: str
) -> None:
    assert format_subject(certificate(*parts)) == text


def test_part_with_several_attributes_is_joined_with_plus() -> None:
    assert format_subject(certificate([(CN, "alice"), (OU, "dev")])) in ("CN=alice+OU=dev", "OU=dev+CN=alice")


@pytest.mark.parametrize(
    ("rules", "subject", "user"),
    [
        ("DEFAULT", "CN=alice,O=Acme", "CN=alice,O=Acme"),
        ("RULE:^CN=([^,]+).*$/$1/", "CN=Alice,O=Acme", "Alice"),
        ("RULE:^CN=([^,]+).*$/$1/L", "CN=Alice,O=Acme", "alice"),
        ("RULE:^CN=([^,]+).*$/$1/U", "CN=Alice", "ALICE"),
        ("RULE:^CN=(.*?),OU=(.*?),.*$/$1@$2/,DEFAULT", "CN=a,OU=b,O=c", "a@b"),
        ("RULE:^CN=(.*?),OU=(.*?),.*$/$1@$2/,DEFAULT", "O=c", "O=c"),
        ("RULE:^CN=x$/y/", "CN=z", None),
        ("RULE:^O=a\\/b$/ab/", "O=a/b", "ab"),
        ("RULE:^CN=(a+)+$/$1/", "CN=" + "a" * 50_000 + "b", None),
    ],
)
def test_first_rule_that_matches_the_whole_subject_applies(
    rules: str, subject: str, user: str | None
) -> None:
    assert parse_principal_rules(rules).user_of(subject) == user


@pytest.mark.parametrize(
    "rules", ["", "RULE", "RULE:x", "RULE:(/x/", "RULE:x/$1/", "DEFAULT;DEFAULT", "RULE:x/y/Z"]
)
def test_malformed_rules_are_refused(rules: str) -> None:
    with pytest.raises(ValueError):
        parse_principal_rules(rules)
