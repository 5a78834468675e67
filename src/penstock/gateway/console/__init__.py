"""The web console: its files (`static`), the server of them, and its settings."""
