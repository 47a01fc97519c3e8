"""Products and attention of answers, whose rows do not depend on one another: see `unrolled.cells.apart`."""
