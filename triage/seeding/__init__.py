"""A made-up fleet with years of failures, for measuring and for trying things out. Everything in it is invented."""
