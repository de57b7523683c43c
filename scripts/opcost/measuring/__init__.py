"""How a measurement is made: what runs, under which conditions, for how long."""
