"""Search in the messages of a topic, newest first, with a limit on bytes and time."""
