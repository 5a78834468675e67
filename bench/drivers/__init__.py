"""Programs that load a broker. Each is a process with JSON parameters and one JSON line of figures as output."""
