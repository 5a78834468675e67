"""Helpers that several test directories share: brokers to test against, raw requests, waiting, ports, seeds."""
