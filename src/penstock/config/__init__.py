"""Configuration: every option, declared once. Import options and configs from here.

The `*_options` modules contain the declarations, `settings` the configs. `loading` reads the configuration from files,
environment and command line; `reference` generates docs/configuration.md.
"""

from __future__ import annotations

from penstock.config.address import Address as Address
from penstock.config.address import parse_address as parse_address
from penstock.config.authorization_options import *  # noqa: F403
from penstock.config.broker_options import *  # noqa: F403
from penstock.config.connection_options import *  # noqa: F403
from penstock.config.dead_letter_options import *  # noqa: F403
from penstock.config.gateway_options import *  # noqa: F403
from penstock.config.group_options import *  # noqa: F403
from penstock.config.listeners import Listener as Listener
from penstock.config.listeners import ListenerEndpoint as ListenerEndpoint
from penstock.config.listeners import ListenerPlan as ListenerPlan
from penstock.config.listeners import SecurityProtocol as SecurityProtocol
from penstock.config.options import Option as Option
from penstock.config.sasl_options import *  # noqa: F403
from penstock.config.settings import BrokerConfig as BrokerConfig
from penstock.config.settings import ConfigSource as ConfigSource
from penstock.config.settings import GroupConfig as GroupConfig
from penstock.config.settings import Synonym as Synonym
from penstock.config.settings import TopicConfig as TopicConfig
from penstock.config.share_options import *  # noqa: F403
from penstock.config.storage_options import *  # noqa: F403
from penstock.config.tls_options import *  # noqa: F403
from penstock.config.topic_options import *  # noqa: F403
from penstock.config.topic_values import *  # noqa: F403
from penstock.config.transaction_options import *  # noqa: F403
from penstock.config.types import Kind as Kind
from penstock.config.webhook_options import *  # noqa: F403
from penstock.config.zookeeper_options import *  # noqa: F403
