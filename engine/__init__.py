"""Faultline's engine: says why an attempt failed, from its evidence alone.

Pure Python: no Django, no network, no clock of its own. The same evidence and the same rules give the same bytes.
"""

__version__ = "0.1.0"
