"""Brokers for tests: `Broker` for any program, and pytest fixtures that are found automatically.

Each is a real `penstock broker` process, so tests exercise the real thing.
"""

from penstock.testing.broker import AsyncBroker as AsyncBroker
from penstock.testing.broker import Broker as Broker
from penstock.testing.process import BrokerProcess as BrokerProcess
