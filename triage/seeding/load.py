"""Writes the made-up fleet with COPY, thousands of rows at once: what the services write one by one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from random import Random
from typing import Any

import msgspec
from django.contrib.auth.models import User
from django.db import connection, models, transaction
from django.db.models import Max

from engine.ruleset import Ruleset
from triage.models import (
    Attempt,
    Cluster,
    Collection,
    Diagnosis,
    DiagnosisNode,
    Gpu,
    Incident,
    IncidentKey,
    Membership,
    Stream,
    TimelineEvent,
    Verdict,
    Workload,
)
from triage.seeding.rows import Rows
from triage.seeding.stories import Storyteller
from triage.seeding.world import BUSES, Try, World
from triage.services.diagnoses import missing_sources, named_rules
from triage.services.grouping import renew_totals

BATCH = 2000
JUDGES = ("maren.vogt", "owen.achebe", "priya.nair")
JUDGED_AFTER = timedelta(days=1)


OTHERWISE = {
    "hardware": ("platform", "driver"),
    "software": ("software", "data"),
    "network": ("hardware", "nic"),
    "storage": ("network", "ethernet"),
    "platform": ("hardware", "gpu"),
    "scheduler": ("software", "user_code"),
}
"""What people say instead, when the engine named the wrong cause."""


@dataclass(frozen=True)
class Answer:
    """The answer that stands for an attempt."""

    domain: str
    sub_domain: str
    blamed: list[str]
    status: str = "unconfirmed"


def seed(world: World, ruleset: Ruleset, count: int, *, say: Any = lambda text: None) -> None:
    """Adds `count` attempts with all that belongs to them. One transaction: all of it or nothing."""
    first = Attempt.objects.aggregate(last=Max("pk"))["last"] or 0
    with transaction.atomic(), connection.cursor() as wrapped:
        loader = Loader(world, Storyteller(ruleset, world.random), wrapped)
        for number, attempt in enumerate(world.tries(count, first), 1):
            loader.add(attempt)
            if number % BATCH == 0:
                loader.flush()
                say(f"{number:,} of {count:,}")
        loader.flush()
        loader.finish()
    with connection.cursor() as cursor:
        for model in (
            Attempt,
            Diagnosis,
            DiagnosisNode,
            Workload,
            Membership,
            Incident,
            TimelineEvent,
            Stream,
            Verdict,
        ):
            cursor.execute(f"VACUUM ANALYZE {model._meta.db_table}")


class Loader:
    """Gathers rows and writes them in the order in which they refer to each other."""

    def __init__(self, world: World, teller: Storyteller, cursor: Any) -> None:
        self.world, self.teller, self.cursor = world, teller, cursor
        self.random: Random = world.random
        self.clusters = [Cluster.objects.get_or_create(name=plan.name)[0].pk for plan in world.clusters]
        self.judges = [User.objects.get_or_create(username=name)[0].pk for name in JUDGES]
        self.jobs: dict[tuple[int, str], int] = {}
        self.incidents: dict[str, int] = dict(IncidentKey.objects.values_list("key", "incident"))
        self.ids: dict[type[models.Model], list[int]] = {}
        self.workloads = Rows(
            Workload, ("id", "cluster_id", "scheduler", "workload_id", "name", "user", "queue", "created_at")
        )
        self.attempts = Rows(
            Attempt,
            (
                "id",
                "workload_id",
                "cluster_id",
                "user",
                "queue",
                "number",
                "state",
                "exit_code",
                "started_at",
                "ended_at",
                "nodes",
                "gpus_per_node",
                "created_at",
                "search",
                "outcome",
                "rule",
                "matched",
                "missing",
                "domain",
                "sub_domain",
                "blamed_nodes",
                "verdict_status",
                "triage_state",
                "triage_reason",
                "triage_run",
                "triage_tries",
                "triage_requested_at",
                "triage_finished_at",
            ),
        )
        self.diagnoses = Rows(
            Diagnosis,
            (
                "id",
                "attempt_id",
                "contract",
                "outcome",
                "domain",
                "sub_domain",
                "title",
                "rule",
                "fingerprint",
                "ruleset",
                "engine_version",
                "evidence_hash",
                "created_at",
            ),
        )
        self.named = Rows(DiagnosisNode, ("diagnosis_id", "node", "role", "first_at"))
        self.opened = Rows(
            Incident,
            (
                "id",
                "title",
                "domain",
                "sub_domain",
                "parts",
                "rule",
                "status",
                "attempts_count",
                "gpu_hours",
                "nodes",
                "nodes_count",
                "created_at",
            ),
        )
        self.keys = Rows(IncidentKey, ("key", "incident_id", "created_at"))
        self.members = Rows(Membership, ("attempt_id", "incident_id", "home_id", "by_hand", "joined_at"))
        self.verdicts = Rows(
            Verdict,
            (
                "id",
                "attempt_id",
                "diagnosis_id",
                "kind",
                "by_id",
                "reason",
                "title",
                "domain",
                "sub_domain",
                "nodes",
                "evidence",
                "lines",
                "rule",
                "created_at",
            ),
        )
        self.collections = Rows(
            Collection,
            (
                "attempt_id",
                "connector",
                "ref",
                "label",
                "content_key",
                "state",
                "tries",
                "streams_done",
                "bytes_done",
                "reports",
                "created_at",
            ),
        )
        self.streams = Rows(
            Stream, ("attempt_id", "name", "source", "node", "size", "lines", "masked", "sha256", "blob", "created_at")
        )
        self.events = Rows(
            TimelineEvent, ("kind", "actor_id", "attempt_id", "node", "happened_at", "recorded_at", "payload")
        )
        self.current: list[tuple[int, int]] = []
        self.judged: list[tuple[int, int]] = []

    def add(self, attempt: Try) -> None:
        job, ended = attempt.job, attempt.end
        cluster = self.clusters[job.cluster]
        workload = self.jobs.get((job.cluster, job.id))
        plan = self.world.clusters[job.cluster]
        if workload is None:
            workload = self.jobs[job.cluster, job.id] = self._id(Workload)
            self.workloads.add(workload, cluster, plan.scheduler, job.id, job.name, job.user, job.queue, attempt.start)
        contract = self.teller.tell(attempt)
        contract["attempt"]["workload"] |= {"scheduler": plan.scheduler, "cluster": plan.name}
        pk, diagnosis = self._id(Attempt), self._id(Diagnosis)
        root = contract["root_cause"] or {}
        rule = root.get("rule", "")
        blamed = [entry["node"] for entry in contract["affected_nodes"] if entry["role"] != "affected"]
        answer = Answer(contract["domain"], contract["sub_domain"], blamed)
        answer = self._judge(pk, diagnosis, attempt, contract, answer)
        nodes = [node.name for node in attempt.nodes]
        state, code = ("COMPLETED", "0:0") if attempt.succeeded else ("FAILED", "1:0")
        words = (
            job.id,
            job.name,
            job.user,
            job.queue,
            plan.scheduler,
            plan.name,
            state,
            *nodes[:64],
            contract["title"],
            rule,
            contract["domain"],
            contract["sub_domain"],
            contract["outcome"],
        )
        self.attempts.add(
            pk,
            workload,
            cluster,
            job.user,
            job.queue,
            attempt.number,
            state,
            code,
            attempt.start,
            ended,
            nodes,
            8,
            ended,
            " ".join(dict.fromkeys(word.lower() for word in words if word)),
            contract["outcome"],
            rule,
            named_rules(contract),
            missing_sources(contract),
            answer.domain,
            answer.sub_domain,
            answer.blamed,
            answer.status,
            "done",
            "",
            1,
            1,
            ended,
            ended,
        )
        self.diagnoses.add(
            diagnosis,
            pk,
            msgspec.json.encode(contract).decode(),
            contract["outcome"],
            contract["domain"],
            contract["sub_domain"],
            contract["title"][:500],
            rule,
            contract["fingerprint"]["key"],
            contract["engine"]["ruleset"],
            contract["engine"]["version"],
            f"{pk:064d}",
            ended,
        )
        for entry in contract["affected_nodes"]:
            self.named.add(diagnosis, entry["node"], entry["role"], entry["first_at"])
        if root:
            self._group(pk, contract, root, ended)
        self._evidence(pk, attempt, nodes, ended)
        self.current.append((pk, diagnosis))

    def flush(self) -> None:
        """Writes what was gathered. What attempts point back to comes after them, so those columns are set last."""
        for rows in (
            self.workloads,
            self.attempts,
            self.diagnoses,
            self.named,
            self.opened,
            self.keys,
            self.members,
            self.verdicts,
            self.collections,
            self.streams,
            self.events,
        ):
            rows.write(self.cursor)
        self._point("diagnosis_id", self.current)
        self._point("verdict_id", self.judged)

    def finish(self) -> None:
        """Counts what incidents show, and says which GPUs the nodes have."""
        gpus = [
            Gpu(
                cluster_id=cluster, node=node.name, bus=bus, number=number, told_at=self.world.end,
                model="NVIDIA H100 80GB HBM3", serial=str(self.random.randrange(1650 * 10**9, 1660 * 10**9)),
            )
            for cluster, plan in zip(self.clusters, self.world.clusters, strict=True)
            for node in plan.nodes
            for number, bus in enumerate(BUSES)
        ]  # fmt: skip
        Gpu.objects.bulk_create(gpus, batch_size=2000, ignore_conflicts=True)
        renew_totals(*Incident.objects.values_list("pk", flat=True))

    # --- parts --------------------------------------------------------------------------------------------------------

    def _judge(self, pk: int, diagnosis: int, attempt: Try, contract: dict[str, Any], answer: Answer) -> Answer:
        """What people said of it: most failures of earlier days are confirmed, some corrected."""
        chance = self.random.random()
        recent = attempt.end > self.world.end - JUDGED_AFTER
        if attempt.succeeded or recent or chance > 0.62 or not contract["root_cause"]:
            return answer
        rule = contract["root_cause"]["rule"]
        kind, reason, status = "confirmed", "", "confirmed"
        if chance / 0.62 > 0.82 + 0.18 * (sum(map(ord, rule)) % 97) / 97:  # some rules are better than others
            kind, reason, status = "incomplete", "There was more to it.", "corrected"
            if self.random.random() < 0.6:
                kind, reason = "wrong_cause", "Found by hand: it began elsewhere."
                answer = Answer(*OTHERWISE[answer.domain], answer.blamed)
        verdict = self._id(Verdict)
        self.verdicts.add(
            verdict, pk, diagnosis, kind, self.random.choice(self.judges), reason, contract["title"][:500],
            answer.domain, answer.sub_domain, answer.blamed, ["e1"], "[]", rule, attempt.end + timedelta(hours=3),
        )  # fmt: skip
        self.judged.append((pk, verdict))
        return replace(answer, status=status)

    def _group(self, pk: int, contract: dict[str, Any], root: dict[str, Any], at: datetime) -> None:
        fingerprint = contract["fingerprint"]
        key = f"{fingerprint['version']}:{fingerprint['key']}"
        incident = self.incidents.get(key)
        if incident is None:
            incident = self.incidents[key] = self._id(Incident)
            parts = msgspec.json.encode(fingerprint["parts"]).decode()
            status = self.random.choice(("new", "investigating", "mitigated", "resolved"))
            self.opened.add(
                incident,
                root["title"],
                contract["domain"],
                contract["sub_domain"],
                parts,
                root["rule"],
                status,
                0,
                0.0,
                [],
                0,
                at,
            )
            self.keys.add(key, incident, at)
        self.members.add(pk, incident, incident, False, at)

    def _evidence(self, pk: int, attempt: Try, nodes: list[str], at: datetime) -> None:
        for kind, later in (("attempt.recorded", 0), ("triage.requested", 1), ("diagnosis.recorded", 40)):
            moment = at + timedelta(seconds=later)
            self.events.add(kind, None, pk, "", moment, moment, "{}")
        if attempt.succeeded:
            return
        self.collections.add(pk, "files", "", "seeded", "", "done", 1, 3, 4_200_000, "[]", at)
        for source in ("applog", "syslog", "scheduler"):
            name = f"{source}/{nodes[0]}.log"
            self.streams.add(pk, name, source, nodes[0], 1_400_000, 12_000, 0, "0" * 64, "", at)

    def _id(self, model: type[models.Model]) -> int:
        """The next id of a table, fetched many at once."""
        ids = self.ids.setdefault(model, [])
        if not ids:
            sequence = f"pg_get_serial_sequence('{model._meta.db_table}', 'id')"
            self.cursor.execute(f"SELECT nextval({sequence}) FROM generate_series(1, %s) ORDER BY 1 DESC", [BATCH])  # nosec B608
            ids += [row[0] for row in self.cursor.fetchall()]
        return ids.pop()

    def _point(self, column: str, pairs: list[tuple[int, int]]) -> None:
        if pairs:
            self.cursor.execute(
                f"UPDATE triage_attempt SET {column} = pair.target"  # nosec B608: a name from this file
                " FROM unnest(%s::bigint[], %s::bigint[]) AS pair (attempt, target) WHERE id = pair.attempt",
                [list(side) for side in zip(*pairs, strict=True)],
            )
        pairs.clear()
