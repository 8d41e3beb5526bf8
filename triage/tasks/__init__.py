"""What workers do. Tasks take ids, may run twice, and keep nothing that the database doesn't know."""

from triage.tasks import checking, collecting, diagnosing, discovery, pruning, sweeping, telling, workers, working

__all__ = ["checking", "collecting", "diagnosing", "discovery", "pruning", "sweeping", "telling", "workers", "working"]
