"""Brokers for tests: `Broker` for any program, and the fixtures that pytest finds by itself.

Each is a real `penstock broker` in a process of its own, so what passes here passes in earnest.
"""

from penstock.testing.broker import AsyncBroker as AsyncBroker
from penstock.testing.broker import Broker as Broker
from penstock.testing.process import BrokerProcess as BrokerProcess
