"""`python -m penstock.simulation`: run seeds, or run one failed seed again with its events shown."""

from __future__ import annotations

from penstock.simulation.command import main

main()
