"""Security functions that need no connection: TLS settings, credentials, SASL exchanges and principals."""
