"""Broker options for webhooks."""

from __future__ import annotations

from penstock.config.address_rules import AddressRules, parse_address_rules
from penstock.config.options import Option, OptionGroup
from penstock.config.types import Parsed

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
