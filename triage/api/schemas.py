"""The shapes of requests and answers: what requests are checked with, and what the OpenAPI document tells."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers as s

from engine.clock import LAST_YEAR
from engine.hostlist import BadHostlist, expand_hostlist
from engine.model import SUB_DOMAINS, Outcome, Source
from triage.models import IncidentStatus, TriageState, VerdictKind, VerdictStatus
from triage.services.incidents import BY_HAND

SCHEDULERS = ("static", "slurm", "kueue")
MOST_NODES = 50_000


class Text(s.CharField):
    """A string that Postgres can keep."""

    def __init__(self, **options: Any) -> None:
        super().__init__(trim_whitespace=True, **{"allow_blank": True, **options})


class Whole(s.IntegerField):
    """A whole number that is no yes or no."""

    def to_internal_value(self, data: Any) -> int:
        if isinstance(data, (bool, float)):
            self.fail("invalid")
        return int(super().to_internal_value(data))


class Strict(s.Serializer):
    """Names that are not known are errors, so that a misspelt one is found."""

    def to_internal_value(self, data: Any) -> Any:
        if not isinstance(data, dict):
            raise s.ValidationError({"body": "must be a JSON object"})
        unknown = sorted(set(map(str, data)) - set(self.fields))
        if unknown:
            raise s.ValidationError({unknown[0]: f"is not known here; known are {', '.join(self.fields)}"})
        return super().to_internal_value(data)


class NodeNames(s.ListField):
    """Names of nodes; lists as Slurm writes them (gx-[01-16]) stand for each of theirs."""

    child = s.CharField(max_length=253)

    def to_internal_value(self, data: Any) -> list[str]:
        names: list[str] = []
        for written in super().to_internal_value(data):
            try:
                names += expand_hostlist(written, most=MOST_NODES - len(names)) if "[" in written else [written]
            except BadHostlist as error:
                raise s.ValidationError(f"{written!r} is no list of nodes: {error}") from None
        return names


# --- what is sent -----------------------------------------------------------------------------------------------------


class Facts(Strict):
    """What a scheduler says of an attempt. What is left out stays as it is."""

    name = Text(required=False, max_length=253, help_text="Of the workload.")
    user = Text(required=False, max_length=253)
    queue = Text(required=False, max_length=253)
    state = Text(required=False, max_length=128, help_text="The scheduler's own word, e.g. FAILED.")
    exit_code = Text(required=False, allow_null=True, max_length=64, help_text="As the scheduler gives it, e.g. 1:0.")
    reason = Text(required=False, allow_null=True, max_length=512)
    started_at = s.DateTimeField(required=False, allow_null=True)
    ended_at = s.DateTimeField(required=False, allow_null=True)
    nodes = NodeNames(required=False, max_length=MOST_NODES, help_text="The allocation (placement).")
    gpus_per_node = Whole(required=False, allow_null=True, min_value=0, max_value=1024)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        started, ended = attrs.get("started_at"), attrs.get("ended_at")
        for name, at in (("started_at", started), ("ended_at", ended)):
            if at and not 1970 <= at.year <= LAST_YEAR:
                raise s.ValidationError({name: f"must lie between the years 1970 and {LAST_YEAR}"})
        if started and ended and ended < started:
            raise s.ValidationError({"ended_at": "is before started_at"})
        return attrs


class NewAttempt(Facts):
    """An attempt by its identity: cluster, scheduler, workload id and number."""

    cluster = Text(required=False, default="", max_length=200)
    scheduler = s.ChoiceField(choices=SCHEDULERS, required=False, default="static")
    workload_id = s.CharField(max_length=253, help_text="The scheduler's own id, e.g. 48213 or nlp/78090.")
    number = Whole(required=False, default=1, min_value=0, max_value=10**6, help_text="Counts restarts, from 1.")


class NewVerdict(Strict):
    """A person's word on a diagnosis, given in the name of the token's user."""

    kind = s.ChoiceField(choices=VerdictKind.choices)
    diagnosis = Whole(min_value=1, max_value=2**63 - 1, help_text="Number of the diagnosis that was judged.")
    seen = Whole(
        required=False,
        allow_null=True,
        default=None,
        min_value=1,
        max_value=2**63 - 1,
        help_text="Number of the verdict that stood then.",
    )
    reason = Text(required=False, default="", max_length=4000, help_text="Needed for a correction.")
    title = Text(required=False, default="", max_length=500)
    domain = s.ChoiceField(choices=list(SUB_DOMAINS), required=False)
    sub_domain = Text(required=False, default="", max_length=32)
    nodes = s.ListField(child=s.CharField(max_length=253), required=False, default=list, max_length=1000)
    evidence = s.ListField(
        child=s.CharField(max_length=16),
        required=False,
        default=list,
        max_length=50,
        help_text="Ids of the diagnosis's evidence.",
    )


class Withdrawal(Strict):
    verdict = Whole(min_value=1, max_value=2**63 - 1, help_text="Number of the verdict that is taken back.")


class NewComment(Strict):
    text = s.CharField(max_length=20_000, help_text="Markdown. Secrets in it are masked.")
    quotes = s.ListField(
        child=s.CharField(max_length=1100),
        required=False,
        default=list,
        max_length=10,
        help_text="Lines to quote: syslog/node-02.log:125-131.",
    )


class IncidentChange(Strict):
    """A change, with what was seen before: somebody else's change in between is a conflict."""

    status = s.ChoiceField(choices=[(status.value, status.label) for status in BY_HAND], required=False)
    seen_status = s.ChoiceField(choices=IncidentStatus.choices, required=False)
    title = s.CharField(required=False, max_length=500)


# --- what is answered -------------------------------------------------------------------------------------------------


class FieldError(s.Serializer):
    field = s.CharField()
    message = s.CharField()


class ProblemDetails(s.Serializer):
    """RFC 9457."""

    type = s.CharField()
    title = s.CharField()
    status = s.IntegerField()
    detail = s.CharField()
    errors = FieldError(many=True, required=False)


class WorkloadRow(s.Serializer):
    id = s.CharField()
    name = s.CharField()
    scheduler = s.CharField()
    user = s.CharField()
    queue = s.CharField()


class TriageRow(s.Serializer):
    state = s.ChoiceField(choices=TriageState.choices)
    reason = s.CharField()
    requested_at = s.DateTimeField(allow_null=True)
    finished_at = s.DateTimeField(allow_null=True)


class AnswerRow(s.Serializer):
    """The answer that stands, in short: a person's, else the current diagnosis's."""

    title = s.CharField()
    outcome = s.ChoiceField(choices=[o.value for o in Outcome])
    domain = s.CharField()
    sub_domain = s.CharField()
    rule = s.CharField(allow_null=True)
    nodes = s.ListField(child=s.CharField())
    status = s.ChoiceField(choices=VerdictStatus.choices)
    diagnosis = s.IntegerField()
    fingerprint = s.CharField()
    ruleset = s.CharField()
    created_at = s.DateTimeField()


class AttemptRow(s.Serializer):
    id = s.IntegerField()
    cluster = s.CharField()
    workload = WorkloadRow()
    number = s.IntegerField()
    state = s.CharField()
    exit_code = s.CharField(allow_null=True)
    reason = s.CharField(allow_null=True)
    started_at = s.DateTimeField(allow_null=True)
    ended_at = s.DateTimeField(allow_null=True)
    nodes = s.ListField(child=s.CharField())
    gpus_per_node = s.IntegerField(allow_null=True)
    gpu_hours = s.FloatField(allow_null=True)
    triage = TriageRow()
    verdict = AnswerRow(allow_null=True)


class AttemptPage(s.Serializer):
    attempts = AttemptRow(many=True)
    older = s.CharField(allow_null=True, help_text="`cursor` of the next page.")
    newer = s.CharField(allow_null=True)


class CollectionRow(s.Serializer):
    connector = s.CharField()
    label = s.CharField()
    state = s.CharField()
    streams = s.IntegerField()
    bytes = s.IntegerField()
    reports = s.ListField(child=s.DictField())


class StreamRow(s.Serializer):
    name = s.CharField()
    source = s.CharField()
    node = s.CharField(allow_null=True)
    rank = s.IntegerField(allow_null=True)
    bytes = s.IntegerField()
    lines = s.IntegerField()
    first_at = s.DateTimeField(allow_null=True)
    last_at = s.DateTimeField(allow_null=True)
    masked = s.IntegerField()
    sha256 = s.CharField()


class AttemptDetail(AttemptRow):
    incident = s.IntegerField(allow_null=True)
    collections = CollectionRow(many=True)
    streams = StreamRow(many=True)


class ObservationRow(s.Serializer):
    name = s.CharField()
    bytes = s.IntegerField(help_text="Where the next part begins.")
    parts = s.IntegerField()
    open = s.BooleanField(help_text="Whether it takes more parts.")
    changed_at = s.DateTimeField()


class LimitsRow(s.Serializer):
    part_bytes = s.IntegerField()
    attempt_bytes = s.IntegerField()
    streams = s.IntegerField()
    calls_per_minute = s.IntegerField(help_text="0: any number.")
    wait_seconds = s.IntegerField()
    content_encodings = s.ListField(child=s.CharField())


class PartTaken(s.Serializer):
    observation = ObservationRow()
    added = s.IntegerField(help_text="Bytes that were new; 0 for a part that was there already.")
    sha256 = s.CharField(help_text="Of the part, decoded.")
    limits = LimitsRow()


class ObservationList(s.Serializer):
    observations = ObservationRow(many=True)
    limits = LimitsRow()


class Pending(s.Serializer):
    """There is no answer yet: ask again, best with `wait`."""

    attempt = s.IntegerField()
    triage = TriageRow()


class DiagnosisRow(s.Serializer):
    id = s.IntegerField()
    current = s.BooleanField()
    supersedes = s.IntegerField(allow_null=True)
    title = s.CharField()
    outcome = s.CharField()
    domain = s.CharField()
    sub_domain = s.CharField()
    rule = s.CharField(allow_null=True)
    ruleset = s.CharField()
    engine = s.CharField()
    created_at = s.DateTimeField()


class DiagnosisList(s.Serializer):
    diagnoses = DiagnosisRow(many=True)


class LineRow(s.Serializer):
    number = s.IntegerField()
    offset = s.IntegerField()
    text = s.CharField()
    cut = s.BooleanField()


class EvidenceDetail(s.Serializer):
    evidence = s.DictField(help_text="As in the diagnosis.")
    roles = s.ListField(child=s.CharField(), help_text="What cites it: root, rival, symptom.")
    lines = LineRow(many=True, help_text="Around it, from the stream; empty when that is no longer kept.")
    kept = s.BooleanField()


class EvidenceList(s.Serializer):
    evidence = s.ListField(child=s.DictField())


class ReportRow(s.Serializer):
    source = s.CharField()
    status = s.ChoiceField(choices=["ok", "empty", "missing", "partial", "error"])
    streams = s.IntegerField()
    lines = s.IntegerField()
    bytes = s.IntegerField()
    first_at = s.CharField(allow_null=True)
    last_at = s.CharField(allow_null=True)
    note = s.CharField()


class Coverage(s.Serializer):
    coverage = ReportRow(many=True)


class ProofRow(s.Serializer):
    id = s.CharField(allow_null=True)
    stream = s.CharField()
    line = s.IntegerField()
    at = s.CharField(allow_null=True)
    device = s.CharField(allow_null=True)
    text = s.CharField()


class ExclusionRow(s.Serializer):
    node = s.CharField()
    said_by = s.ChoiceField(choices=["engine", "person"])
    evidence = ProofRow(many=True)


class WithheldRow(s.Serializer):
    node = s.CharField()
    why = s.CharField()


class RecommendationRow(s.Serializer):
    attempt = s.IntegerField()
    diagnosis = s.IntegerField(allow_null=True)
    status = s.ChoiceField(choices=["pending", "partial", "complete", "failed"])
    action = s.ChoiceField(choices=["restart", "restart_excluding", "stop", "investigate", "none", "unknown"])
    retry_can_help = s.BooleanField(allow_null=True)
    reason = s.CharField()
    source = s.CharField(help_text="engine, person, or empty without an answer.")
    exclude_nodes = ExclusionRow(many=True)
    withheld_nodes = WithheldRow(many=True)
    missing_sources = s.ListField(child=s.CharField())
    references = s.ListField(child=s.CharField())


class Imported(s.Serializer):
    attempt = s.IntegerField()
    created = s.BooleanField()
    requested = s.BooleanField()


class VerdictRow(s.Serializer):
    id = s.IntegerField()
    kind = s.ChoiceField(choices=VerdictKind.choices)
    stands = s.BooleanField()
    by = s.CharField()
    diagnosis = s.IntegerField()
    reason = s.CharField()
    title = s.CharField()
    domain = s.CharField()
    sub_domain = s.CharField()
    nodes = s.ListField(child=s.CharField())
    evidence = s.ListField(child=s.CharField())
    created_at = s.DateTimeField()
    ended_at = s.DateTimeField(allow_null=True)


class VerdictList(s.Serializer):
    status = s.ChoiceField(choices=VerdictStatus.choices)
    verdicts = VerdictRow(many=True)


class CommentRow(s.Serializer):
    id = s.IntegerField()
    by = s.CharField()
    text = s.CharField()
    quotes = s.ListField(child=s.DictField())
    created_at = s.DateTimeField()
    edited_at = s.DateTimeField(allow_null=True)
    deleted = s.BooleanField()


class CommentList(s.Serializer):
    comments = CommentRow(many=True)


class IncidentRow(s.Serializer):
    id = s.IntegerField()
    name = s.CharField()
    title = s.CharField()
    domain = s.CharField()
    sub_domain = s.CharField()
    rule = s.CharField(allow_null=True)
    status = s.ChoiceField(choices=IncidentStatus.choices)
    severity = s.IntegerField(allow_null=True)
    assignee = s.CharField(allow_null=True)
    attempts = s.IntegerField()
    gpu_hours = s.FloatField()
    first_at = s.DateTimeField(allow_null=True)
    last_at = s.DateTimeField(allow_null=True)


class IncidentPage(s.Serializer):
    incidents = IncidentRow(many=True)
    older = s.CharField(allow_null=True)


class NodeTimes(s.Serializer):
    node = s.CharField()
    times = s.IntegerField()
    last_at = s.DateTimeField()


class IncidentDetail(IncidentRow):
    merged_into = s.IntegerField(allow_null=True)
    nodes = NodeTimes(many=True)
    newest_attempts = s.ListField(child=s.IntegerField())


class NodeRow(s.Serializer):
    node = s.CharField()
    cluster = s.CharField()
    blamed = s.IntegerField(help_text="Attempts whose standing answer blames it.")
    last_at = s.DateTimeField()


class NodePage(s.Serializer):
    nodes = NodeRow(many=True)


class RuleRow(s.Serializer):
    id = s.CharField()
    title = s.CharField()
    role = s.CharField()
    domain = s.CharField(allow_null=True)
    sub_domain = s.CharField(allow_null=True)


class RuleList(s.Serializer):
    ruleset = s.CharField()
    rules = RuleRow(many=True)


SOURCES = [source.value for source in Source]
