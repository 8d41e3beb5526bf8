"""What Faultline keeps, one aggregate a file. Written only through `triage.services`, read through
`triage.selectors`.
"""

from triage.models.attempt import Attempt, TriageState
from triage.models.cluster import Cluster
from triage.models.collection import Collection, CollectionState
from triage.models.diagnosis import Diagnosis, DiagnosisNode, NodeRole
from triage.models.discovery import Discovery
from triage.models.stream import Stream
from triage.models.timeline import EventKind, TimelineEvent
from triage.models.workload import Workload

__all__ = [
    "Attempt",
    "Cluster",
    "Collection",
    "CollectionState",
    "Diagnosis",
    "DiagnosisNode",
    "Discovery",
    "EventKind",
    "NodeRole",
    "Stream",
    "TimelineEvent",
    "TriageState",
    "Workload",
]
