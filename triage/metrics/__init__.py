"""Figures of Faultline's own work, for Prometheus: counters of what was done, gauges of what stands."""
