"""The Kafka protocol as bytes in and values out: no sockets, no clock, no broker state."""
