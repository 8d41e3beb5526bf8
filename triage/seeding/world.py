"""The made-up fleet: clusters, nodes of which a few are bad, people, jobs, and how attempts go."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random

GIVEN = (
    "ada",
    "ben",
    "chloe",
    "dmitri",
    "elena",
    "farid",
    "greta",
    "hiro",
    "ines",
    "jonas",
    "kemal",
    "lena",
    "mira",
    "noor",
    "owen",
    "priya",
    "quinn",
    "rosa",
    "sven",
    "tomas",
    "uma",
    "viktor",
    "wanda",
    "xenia",
    "yusuf",
    "zoe",
)
FAMILY = ("achebe", "bauer", "costa", "dahl", "evans", "fonseca", "ghosh", "hansen")
MODELS = (
    "llama-7b",
    "llama-70b-pretrain",
    "moe-8x22b",
    "clip-h",
    "sdxl-ft",
    "reward-model",
    "dpo-8x7b",
    "bert-large-mlm",
    "whisper-l",
    "multi-lang-7b",
    "code-33b",
    "vit-g",
    "speech-ssl",
    "long-context-32k",
    "eval-suite",
    "distill-3b",
)
QUEUES = ("pretrain", "finetune", "research", "vision", "speech", "eval", "alignment", "infra", "interns", "batch")
SIZES = ((1, 55), (2, 15), (4, 12), (8, 8), (16, 5), (32, 3), (64, 1.5), (128, 0.5))
"""Nodes of an attempt, and weights."""
OUTCOMES = (("failed", 80), ("hung", 5), ("timed_out", 6), ("preempted", 5), ("cancelled", 3), ("degraded", 1))
BUSES = (
    "0000:1b:00", "0000:43:00", "0000:52:00", "0000:61:00", "0000:9d:00", "0000:c3:00", "0000:d1:00", "0000:df:00",
)  # fmt: skip
"""Where the GPUs of a node sit."""
PATIENCE = 8
"""Attempts of one job at most."""


@dataclass(frozen=True)
class Node:
    name: str
    weakness: float
    """How much likelier than others it is to be where a failure begins."""
    devices: tuple[str, ...]


@dataclass
class ClusterPlan:
    name: str
    scheduler: str
    nodes: list[Node]
    weight: float


@dataclass
class Job:
    """A workload."""

    cluster: int
    id: str
    name: str
    user: str
    queue: str
    size: int
    tries: int = 0


@dataclass
class Try:
    """An attempt: when, where and how it went."""

    job: Job
    number: int
    start: datetime
    end: datetime
    nodes: list[Node]
    succeeded: bool
    outcome: str


@dataclass
class World:
    random: Random
    days: int
    end: datetime
    clusters: list[ClusterPlan] = field(default_factory=list)
    users: list[str] = field(default_factory=list)

    @classmethod
    def build(cls, seed: int, nodes: int, days: int, end: datetime) -> World:
        world = cls(Random(seed), days, end)
        plans = (
            ("c1", "slurm", "node", 0.5),
            ("c2", "slurm", "gpu", 0.25),
            ("k8s-1", "kueue", "pool-a", 0.17),
            ("c3", "slurm", "cn", 0.08),
        )
        for name, scheduler, prefix, share in plans:
            members = [world._node(f"{prefix}-{number:03}") for number in range(1, max(4, int(nodes * share)) + 1)]
            world.clusters.append(ClusterPlan(name, scheduler, members, share))
        world.users = [f"{given}.{family}" for family in FAMILY for given in GIVEN][: max(12, nodes // 6)]
        return world

    def _node(self, name: str) -> Node:
        bad = self.random.random() < 0.02
        worst = self.random.choice(BUSES)
        return Node(name, 40.0 if bad else 1.0, (worst,) if bad else BUSES)

    def tries(self, count: int, first: int = 0) -> Iterator[Try]:
        """`count` attempts in the order of their start; failed jobs are tried again on other nodes.

        `first` is added to the numbers of jobs, so that they are new.
        """
        moments = sorted(self.random.random() ** 0.8 for _ in range(count))
        begin = self.end - timedelta(days=self.days)
        waiting: list[Job] = []
        for number, moment in enumerate(moments):
            start = begin + moment * (self.end - begin)
            retry = waiting and self.random.random() < 0.45
            job = waiting.pop(self.random.randrange(len(waiting))) if retry else self._job(first + number)
            attempt = self._try(job, start)
            if not attempt.succeeded and job.tries < PATIENCE:
                waiting.append(job)
                if len(waiting) > 60:
                    waiting.pop(0)
            yield attempt

    def _job(self, number: int) -> Job:
        random = self.random
        cluster = random.choices(range(len(self.clusters)), [plan.weight for plan in self.clusters])[0]
        plan = self.clusters[cluster]
        size = min(_weighted(random, SIZES), max(1, len(plan.nodes) // 2))
        user = self.users[min(int(random.expovariate(1 / 14)), len(self.users) - 1)]
        plain = plan.scheduler == "slurm"
        name = random.choice(MODELS)
        return Job(
            cluster,
            str(400_000 + number) if plain else f"{name.partition('-')[0]}/{name}-{number}",
            name,
            user,
            QUEUES[min(int(random.expovariate(0.45)), len(QUEUES) - 1)],
            size,
        )

    def _try(self, job: Job, start: datetime) -> Try:
        random = self.random
        job.tries += 1
        members = self.clusters[job.cluster].nodes
        first = random.randrange(len(members))
        nodes = [members[(first + place) % len(members)] for place in range(job.size)]
        risk = 0.30 + 0.02 * job.size**0.5 + 0.1 * any(node.weakness > 1 for node in nodes)
        succeeded = random.random() > min(0.9, risk)
        hours = min(96.0, random.lognormvariate(0.6 if succeeded else 0.1, 1.3))
        lasted = timedelta(hours=hours, seconds=random.randrange(60))
        left = self.end - start
        end = start + (lasted if lasted < left else left * random.random())
        outcome = "succeeded" if succeeded else _weighted(random, OUTCOMES)
        return Try(job, job.tries, start, end, nodes, succeeded, outcome)


def _weighted(random: Random, choices: tuple[tuple[object, float], ...]) -> object:  # type: ignore[type-arg]
    return random.choices([value for value, _ in choices], [weight for _, weight in choices])[0]
