"""Programs that load a broker, each a process: parameters as JSON in, figures as one JSON line out."""
