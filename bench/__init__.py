"""Penstock beside Apache Kafka on one machine, in one interleaved run; see bench/README.md.

Nothing of the product imports this package, and no timed test does: it is run by `make bench`.
"""
