"""When things run: one run's state on a plan, and the drivers that fire its units."""
