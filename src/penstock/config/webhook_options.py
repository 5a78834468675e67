"""Broker options for webhooks."""

from __future__ import annotations

from penstock.config.address_rules import AddressRules, parse_address_rules
from penstock.config.options import Option, OptionGroup
from penstock.config.types import Optional, Parsed, Text

WEBHOOKS = OptionGroup("Webhooks")
WEBHOOK_ALLOW_PRIVATE_ADDRESSES: Option[AddressRules] = WEBHOOKS.option(
    "webhook.allow.private.addresses",
    Parsed(parse_address_rules, "true, false or networks such as 127.0.0.0/8,10.1.0.0/16"),
    AddressRules(),
    "Private, loopback, link-local and reserved addresses that webhooks may call: none (`false`), all (`true`), or a "
    "list of networks such as `127.0.0.0/8,10.1.0.0/16`. It is applied to the address of each connection, also after "
    "a redirect.",
    dynamic=True,
)
WEBHOOK_SSL_CA_LOCATION: Option[str | None] = WEBHOOKS.option(
    "webhook.ssl.ca.location",
    Optional(Text()),
    None,
    "PEM file with certificates of authorities that webhooks trust besides those of the system, for receivers with "
    "certificates of a private authority. Read again within a minute when it changes.",
    dynamic=True,
)
