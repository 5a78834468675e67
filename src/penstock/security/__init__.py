"""Security without connections: TLS settings, credentials, SASL exchanges and principals."""
