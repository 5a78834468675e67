"""Brokers for tests: `Broker` for any program, and pytest fixtures that are found automatically.

Each broker is a real `penstock broker` process.
"""

from penstock.testing.broker import AsyncBroker as AsyncBroker
from penstock.testing.broker import Broker as Broker
from penstock.testing.process import BrokerProcess as BrokerProcess
