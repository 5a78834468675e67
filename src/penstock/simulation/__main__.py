"""`python -m penstock.simulation`: run seeds, and run a failing one again with everything it did shown."""

from __future__ import annotations

from penstock.simulation.command import main

main()
