"""SASL on the server's side: the exchanges of the mechanisms, and the gate in front of dispatch."""
