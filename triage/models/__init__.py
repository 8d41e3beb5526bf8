"""What Faultline keeps, one aggregate a file. Written only through `triage.services`, read through
`triage.selectors`.
"""

from triage.models.attempt import Attempt, TriageState, VerdictStatus
from triage.models.attempt_node import AttemptNode
from triage.models.audit import AuditEntry
from triage.models.cluster import Cluster
from triage.models.collection import Collection, CollectionState
from triage.models.comment import Comment, CommentRevision, Notification
from triage.models.configured import CheckState, ClusterCheck, ConfiguredCluster, ConfiguredSource, SourceCheck
from triage.models.diagnosis import Diagnosis, DiagnosisNode, NodeRole
from triage.models.discovery import Discovery, Recollection, RunningAttempt, SightedObject
from triage.models.following import Followed, FollowedKind
from triage.models.gpu import Gpu
from triage.models.incident import (
    Incident,
    IncidentKey,
    IncidentStatus,
    Membership,
    NotTheSame,
    Severity,
    Ticket,
)
from triage.models.observation import Observation, SubmittedCycle, SubmittedLog
from triage.models.outbox import (
    Announcement,
    Channel,
    ChannelKind,
    Delivery,
    DeliveryState,
    News,
    Route,
)
from triage.models.person import Person, TeamReach
from triage.models.saved_view import Audience, DefaultView, SavedView
from triage.models.share import ShareLink, ShareOpening
from triage.models.stream import Stream
from triage.models.timeline import EventKind, TimelineEvent
from triage.models.token import ApiToken, IdempotentCall, Scope
from triage.models.verdict import CORRECTIONS, Verdict, VerdictKind
from triage.models.workload import Workload

__all__ = [
    "CORRECTIONS",
    "Announcement",
    "ApiToken",
    "Attempt",
    "AttemptNode",
    "Audience",
    "AuditEntry",
    "Channel",
    "ChannelKind",
    "CheckState",
    "Cluster",
    "ClusterCheck",
    "Collection",
    "CollectionState",
    "Comment",
    "CommentRevision",
    "ConfiguredCluster",
    "ConfiguredSource",
    "DefaultView",
    "Delivery",
    "DeliveryState",
    "Diagnosis",
    "DiagnosisNode",
    "Discovery",
    "EventKind",
    "Followed",
    "FollowedKind",
    "Gpu",
    "IdempotentCall",
    "Incident",
    "IncidentKey",
    "IncidentStatus",
    "Membership",
    "News",
    "NodeRole",
    "NotTheSame",
    "Notification",
    "Observation",
    "Person",
    "Recollection",
    "Route",
    "RunningAttempt",
    "SavedView",
    "Scope",
    "Severity",
    "ShareLink",
    "ShareOpening",
    "SightedObject",
    "SourceCheck",
    "Stream",
    "SubmittedCycle",
    "SubmittedLog",
    "TeamReach",
    "Ticket",
    "TimelineEvent",
    "TriageState",
    "Verdict",
    "VerdictKind",
    "VerdictStatus",
    "Workload",
]
