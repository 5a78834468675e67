"""`python -m simulation`: run seeds, or run one failed seed again with its events shown."""

from __future__ import annotations

from simulation.command import main

main()
