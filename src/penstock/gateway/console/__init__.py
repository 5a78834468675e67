"""The web console: its files (`static`), the endpoints that serve them, and its settings."""
