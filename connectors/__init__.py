"""Where the evidence of an attempt is, and how it is fetched. I/O only; yields the engine's own types."""
