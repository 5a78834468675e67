"""Benchmarks of Penstock beside Apache Kafka on one machine, in one interleaved run; see bench/README.md.

The product does not import this package, and no test measures time with it: `make bench` runs it.
"""
