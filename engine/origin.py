"""Which node, rank and device a line speaks for: a map of the job, drawn from everything that names two of them
together.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from engine import hostlist
from engine.facts import Fact
from engine.lines import Line, whole
from engine.model import Attempt, Stream
from engine.names import NodeNames
from engine.scan import Hit

_PCI = re.compile(
    r"(?:PCI:)?(?:(?P<domain>[0-9a-fA-F]{4,8}):)?(?P<bus>[0-9a-fA-F]{2}):(?P<slot>[0-9a-fA-F]{2})(?:\.(?P<function>[0-7]))?\Z"
)
_ASSIGNED = re.compile(r"Successfully assigned (?:[\w.-]+/)?(?P<pod>[\w.-]+) to (?P<node>[\w.-]+)")
_OWN = re.compile(r"pod: Pod=(?P<pod>\S+)|condition: Kind=(?P<kind>(?!Node)\w+) Name=(?P<name>\S+)")
_MAKERS = frozenset({"ReplicaSet", "Deployment", "StatefulSet", "DaemonSet"})
_IP = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}")
_NUMBER = re.compile(r"\d+")
_ORDINAL = re.compile(r"(?:worker|node|replica|rank|master|main|launcher)?-?(\d+)\Z")


def normal_device(device: str) -> str:
    """A PCI bus id in one form (``0000:61:00``); anything else as it is."""
    found = _PCI.match(device.strip())
    if not found:
        return device.strip()
    domain = (found["domain"] or "0000")[-4:].lower()
    function = found["function"]
    return f"{domain}:{found['bus'].lower()}:{found['slot'].lower()}" + (
        f".{function}" if function not in (None, "0") else ""
    )


def bus_id(number: str) -> str:
    """NCCL's ``busId 61000`` (hexadecimal, domain-bus-device-function in one number) as ``0000:61:00``."""
    value = int(number, 16)
    return f"{value >> 20 & 0xFFFF:04x}:{value >> 12 & 0xFF:02x}:{value >> 4 & 0xFF:02x}"


class Places:
    """The map of one attempt."""

    def __init__(self, attempt: Attempt, streams: Sequence[Stream]) -> None:
        self.attempt = attempt
        self._names = NodeNames(attempt.nodes)
        own = _NUMBER.match(attempt.workload.id)
        self.jobs: set[str] = {own[0]} if own else set()
        """Numbers by which the scheduler's lines call this job."""
        self.pods: dict[str, str] = {}
        self._pod_uids: dict[str, set[str]] = {}
        """node -> uids of the job's pods there"""
        self.ips: dict[str, str] = dict(self._names.addresses)
        self.claimed: dict[str, set[str]] = {}
        """address -> nodes whose ranks say that they listen at it"""
        self._told: dict[str, set[str]] = {}
        """address -> nodes whose system logs call it theirs"""
        self.ranks: dict[int, str] = {}
        self.gpus: dict[int, str] = {}
        """rank -> PCI bus id of its GPU"""
        self._on_bus: dict[str, list[int]] = {}
        self.assumed_ranks = True
        self.pod_ranks: dict[str, int] = {}
        self._stream_nodes: dict[tuple[str, str | None], str | None] = {}
        self._position = {node: position for position, node in enumerate(attempt.nodes)}
        self._own_objects: dict[str, set[str]] = {}
        """kind -> names of the job's own objects of the cluster"""
        for stream in streams:
            if stream.node and stream.rank is not None and self.known(stream.node):
                self.learn_rank(stream.rank, stream.node)

    def known(self, host: str | None) -> str | None:
        """The allocated node that `host` names, with or without domain; None when it is not one of the job."""
        return self._names.known(host) if host else None

    @property
    def names(self) -> frozenset[str]:
        """How the nodes are called, with and without domain, and the pods that are known."""
        nodes = self.attempt.nodes
        return frozenset({*nodes, *(node.split(".", 1)[0] for node in nodes), *self.pods})

    def learn_rank(self, rank: int, node: str) -> None:
        known = self.known(node)
        if known:
            self.ranks.setdefault(rank, known)
            self.assumed_ranks = False

    def _learn_job(self, fact: Fact) -> None:
        """An array task or part of a het job has a number of its own, which daemons write instead of the job's."""
        names = [fact.fields.get(key, "") for key in ("JobID", "JobIDRaw", "JobId", "ArrayJobId", "HetJobId")]
        own = self.attempt.workload.id
        if own in (name.split(".")[0] for name in names):
            self.jobs |= {found[0] for name in names if (found := _NUMBER.match(name))}

    def learn_facts(self, facts: Iterable[Fact]) -> None:
        self._stream_nodes.clear()
        for fact in facts:
            own = _OWN.match(fact.text)
            if own:
                self._own_objects.setdefault("Pod" if own["pod"] else own["kind"], set()).add(own["pod"] or own["name"])
            if fact.kind in ("sacct", "job"):
                self._learn_job(fact)
            if fact.kind == "pod" and fact.node:
                self.pods[fact.fields["pod"]] = fact.node
                if fact.fields.get("uid"):
                    self._pod_uids.setdefault(self.known(fact.node) or fact.node, set()).add(fact.fields["uid"])
                for key in ("ip",):
                    if fact.fields.get(key):
                        self.ips[fact.fields[key]] = self.known(fact.node) or fact.node
            elif fact.kind == "event":
                assigned = _ASSIGNED.search(fact.text)
                if assigned:
                    self.pods.setdefault(assigned["pod"], assigned["node"])

    def is_another_pods(self, uid: str, node: str | None) -> bool:
        """Does a control group of this node certainly belong to none of the job's pods there?"""
        own = self._pod_uids.get(node or "")
        return own is not None and uid.replace("_", "-") not in own

    def is_another_jobs(self, kind: str, name: str) -> bool:
        """Is this pod (or job, or workload) of the cluster certainly not one of the attempt's?"""
        # What makes pods is named as its pods begin.
        own = self._own_objects.get(kind) or (self._own_objects.get("Pod") if kind in _MAKERS else None)
        if not own or name in own:
            return False
        workload = self.attempt.workload
        named = [part for part in (workload.id, workload.name) if part and len(part) > 3]
        stems = [one.rsplit("-", 1)[0] for one in own]
        alike = any(name.startswith(stem) for stem in stems) or any(one.startswith(f"{name}-") for one in own)
        return not alike and not any(part in name for part in named)

    def learn_hits(self, hits: Iterable[Hit], stream: Stream) -> None:
        """Learn from the lines of the `origin` rules."""
        for hit in hits:
            captures, line = hit.captures, hit.cleaned
            host = (
                self.known(self.pods.get(line.node or "", line.node))
                or self.known(line.host)
                or self.stream_node(stream)
                or self.known(captures.get("node"))
            )
            rank = line.rank if line.rank is not None else stream.rank
            if "tasks" in captures:
                self._learn_tasks(captures["node"], captures["tasks"])
                continue
            named = whole(captures.get("rank", ""))
            if named is not None and ("nranks" in captures or "node" in captures):
                # A sub-communicator counts its own ranks: the envelope's rank is the global one.
                rank = rank if rank is not None else named
                if "bus" in captures and rank is not None:
                    self._learn_gpu(rank, bus_id(captures["bus"]))
                node = self.known(captures.get("node")) or host
                if node and (line.rank is not None or "node" in captures or self._whole_job(captures)):
                    self.learn_rank(rank, node)
            if "ip" in captures:
                node = host or (self.ranks.get(rank) if rank is not None else None)
                if node:
                    self._learn_address(captures["ip"], node, self.claimed)
            elif "own" in captures and host and captures["own"] not in self.claimed:
                # What a node's system log calls the node's own; what the ranks say of themselves goes before.
                self._learn_address(captures["own"], host, self._told)

    def _learn_gpu(self, rank: int, bus: str) -> None:
        if rank not in self.gpus:
            self.gpus[rank] = bus
            self._on_bus.setdefault(bus, []).append(rank)

    def _learn_address(self, ip: str, node: str, told: dict[str, set[str]]) -> None:
        """An address that several nodes have, as bridges do, is no node's."""
        nodes = told.setdefault(ip, set())
        nodes.add(node)
        if len(nodes) > 1:
            self.ips.pop(ip, None)
        else:
            self.ips.setdefault(ip, node)

    def _whole_job(self, captures: dict[str, str]) -> bool:
        per_node = self.attempt.gpus_per_node or 0
        return captures.get("nranks") == str(per_node * len(self.attempt.nodes))

    @staticmethod
    def listed(text: str) -> list[str]:
        """The hosts of ``node-[03-04],x7``; [] when it is no such list."""
        try:
            hosts: list[str] = hostlist.expand_hostlist(text.strip(",.:"))
        except (hostlist.BadHostlist, ValueError):
            return []
        return hosts

    def _learn_tasks(self, node: str, tasks: str) -> None:
        try:
            for rank in hostlist.expand_hostlist(f"[{tasks}]", allow_duplicates=True)[:4096]:
                self.learn_rank(int(rank), node)
        except (hostlist.BadHostlist, ValueError):
            return

    def assume_ranks(self) -> None:
        """Where nothing tells otherwise, ranks fill the nodes in the scheduler's order, one a GPU."""
        per_node = self.attempt.gpus_per_node
        if not per_node:
            return
        for index, node in enumerate(self.attempt.nodes):
            for rank in range(index * per_node, (index + 1) * per_node):
                self.ranks.setdefault(rank, node)

    def stream_node(self, stream: Stream) -> str | None:
        """The node of a whole stream: by its name, or by the pod that it is named after."""
        key = stream.name, stream.node
        if key not in self._stream_nodes:  # asked for every line, and a large job has many pods
            self._stream_nodes[key] = self._find_stream_node(stream)
        return self._stream_nodes[key]

    def _find_stream_node(self, stream: Stream) -> str | None:
        if stream.node:
            return self.known(stream.node) or stream.node
        stem = stream.name.rsplit("/", 1)[-1]
        ends = (end for end in range(len(stem), 0, -1) if not stem[end : end + 1].isalnum())
        pod = next((stem[:end] for end in ends if stem[:end] in self.pods), None)
        return None if pod is None else self.known(self.pods[pod]) or self.pods[pod]

    def node_of(self, line: Line, stream: Stream, captures: dict[str, str], rank: int | None) -> str | None:
        """The node that a line speaks for: what it names itself, then its host, pod, rank, address; last its stream."""
        named = captures.get("node")
        if named:
            return self.known(named) or self.pods.get(named) or named.strip("[]")
        if line.node and (known := self.known(self.pods.get(line.node, line.node))):
            return known
        if line.host and (known := self.known(line.host)):
            return known
        if line.named and (known := self.known(line.named)):
            return known
        if line.pod and line.pod in self.pods:
            return self.known(self.pods[line.pod]) or self.pods[line.pod]
        if rank is not None and rank in self.ranks and stream.node is None:
            return self.ranks[rank]
        if line.ip and line.ip in self.ips:
            return self.ips[line.ip]
        return self.stream_node(stream) or line.host

    def rank_of(self, line: Line, stream: Stream, captures: dict[str, str]) -> int | None:
        """Global rank: what the line names, its envelope, its stream; a local rank by its pod's or node's place."""
        named = whole(captures.get("rank", ""))
        if line.rank is not None:
            return line.rank
        if named is not None:
            return named
        if stream.rank is not None:
            return stream.rank
        if line.mentioned_rank is not None:
            return line.mentioned_rank
        if line.local_rank is not None and self.attempt.gpus_per_node:
            node = self.stream_node(stream)
            if node in self._position:
                return self._position[node] * self.attempt.gpus_per_node + line.local_rank
            if len(self.attempt.nodes) == 1:
                return line.local_rank
        return None

    def rank_at(self, node: str | None, device: str | None) -> int | None:
        """The rank whose GPU has this bus id on this node, as NCCL told when it began."""
        if node is None or device is None:
            return None
        return min((rank for rank in self._on_bus.get(device, ()) if self.ranks.get(rank) == node), default=None)

    def peer_of(self, peer: str) -> str | None:
        """The node that ``10.1.2.3<41822>``, ``[node-01]:29500`` or ``rank 7`` names, if it is one of the job."""
        address = _IP.search(peer)
        if address:
            return self.ips.get(address[0])
        rank = whole(peer.strip())
        if rank is not None:
            return self.ranks.get(rank)
        host = re.split(r"[<:]", peer.strip("[] "))[0].strip("[]")
        return self.known(host)
