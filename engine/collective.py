"""Who is missing from a collective: watchdog lines, flight-recorder dumps, and the last words of the ranks that are.

A flight-recorder dump (PyTorch NCCL, pickle or JSON) lists the last collectives of one rank. Per process group this
module finds ranks that issued another operation than the others at the same sequence number, and ranks that never
issued the one that the others wait in. Its conclusions are lines; rules/collective.yaml says what they mean.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence

import msgspec

from engine.clock import Stamp
from engine.dumps import MAX_DUMP, Call, Dump, DumpError, load_dump, read_dump
from engine.facts import Fact
from engine.findings import Placed
from engine.lastwords import Words, last_words
from engine.lines import printable, whole
from engine.model import Role, Source, Stream
from engine.origin import Places

_SAME_SIZES = ("allreduce", "broadcast", "allgather", "reducescatter", "barrier")
_PAIR = re.compile(r"(?P<op>send|recv) (?P<me>\d+)(?:->|<-)(?P<peer>\d+)")
BAR = "collective.bar"
_GAVE_UP = re.compile(r"(?i)collective operation timeout|wait timeout after|timed out after \d+ ?ms|barrier.{0,40}time")
_TO_MASTER = ("pytorch.store-", "pytorch.connect-", "pytorch.rendezvous-")
"""Every rank is connected to the one store: who loses it says nothing about its node."""
_OF_OTHERS = ("slurm.", "k8s.", "pytorch.child-", "python.child-")
"""What a launcher says of a process that ended is no complaint of that process."""
_NUMEL = re.compile(r"NumelIn=(\d+), NumelOut=(\d+)")
_PHASES = (
    (
        "checkpoint",
        re.compile(
            r"(?i)\b(writ|sav|load|restor|serializ|flush|upload)\w*\b.{0,60}(shard|checkpoint|ckpt|state|snapshot|\.pt\b|safetensors)|(checkpoint|ckpt)\w*.{0,30}(sav|writ|load|begin|start)"
        ),
    ),
    (
        "data",
        re.compile(
            r"(?i)\b(load|read|fetch|download|decod|tokeni|prefetch|open|stream)\w*\b.{0,60}"
            r"(batch|shard|sample|dataset|data|file|parquet|tar\b|record|index)|dataloader|data loader"
        ),
    ),
    ("code", re.compile(r"(?i)\b(evaluat|validat|generat|infer|logging|plot|metric|profil|callback|sampling)\w*")),
)


class Wait(msgspec.Struct):
    """Ranks that are in a collective of one group, and the ranks of it that never came."""

    group: str
    seq: int
    op: str
    waiting: tuple[int, ...]
    lagging: tuple[int, ...]


class Dumps(msgspec.Struct):
    dumps: dict[int, Dump] = {}
    facts: list[Fact] = []
    streams: int = 0
    errors: list[str] = []
    lagging: list[int] = []
    waits: list[Wait] = []


class Missing(msgspec.Struct):
    """Ranks that the others waited for."""

    ranks: tuple[int, ...] = ()
    nodes: tuple[str, ...] = ()
    by: str = ""
    """watchdog | flight recorder | report of the ranks | words of its peers | use of the GPUs | reports of
    stragglers | start of the communicators | silence of the nodes"""
    seq: str = ""
    facts: list[Fact] = []
    since: float | None = None
    """From when on they were waited for, where that is told."""


def read_dumps(streams: Sequence[Stream], places: Places) -> Dumps:
    """Read every flight-recorder dump and compare the ranks."""
    found = Dumps()
    for stream in streams:
        if stream.source is not Source.FLIGHT_RECORDER:
            continue
        found.streams += 1
        try:
            with stream.open() as source:
                document = load_dump(source.read(MAX_DUMP + 1))
            dump = read_dump(document, stream)
        except (DumpError, OSError, ValueError, EOFError) as error:
            found.errors.append(f"{stream.name}: {error}")
            continue
        found.dumps[dump.rank] = dump
    everyone = found.dumps.values()
    # Groups of one name are told apart by their ranks: a mesh gives each of its rows the same name.
    for name, ranks in sorted({(name, tuple(dump.groups.get(name, ()))) for dump in everyone for name in dump.last}):
        _compare_group(name, ranks, found)
    _compare_pairs(found)
    _cross_waits(found)
    return found


def _cross_waits(found: Dumps) -> None:
    """Groups that wait for each other in a ring: everybody is in some collective, and nobody is late.

    Then the order of the calls differs between ranks. The fewest that wait in one of the groups are the odd ones out.
    """
    waiting = {rank for wait in found.waits for rank in wait.waiting}
    lagging = {rank for wait in found.waits for rank in wait.lagging}
    if len(found.waits) < 2 or not lagging or not lagging <= waiting:
        return
    odd = min(found.waits, key=lambda wait: (len(wait.waiting), wait.group, wait.seq))
    missed = [wait for wait in found.waits if wait is not odd and set(odd.waiting) & set(wait.lagging)]
    if not missed:
        return
    other = max(missed, key=lambda wait: (len(wait.waiting), wait.group, wait.seq))
    found.facts = [fact for fact in found.facts if not fact.text.startswith("collective lagging:")]
    found.lagging = []
    for rank in odd.waiting:
        text = (
            f"collective mismatch: pg={odd.group.split('/')[-1]} seq={odd.seq} rank={rank} issued {odd.op} [] "
            f"where {len(other.waiting)} ranks issued {other.op} of group {other.group.split('/')[-1]}, "
            "and each side waits for the other"
        )
        dump = found.dumps[rank]
        found.facts.append(_fact(text, dump, _created(dump, odd.group, odd.seq)))


def _compare_group(name: str, ranks: tuple[int, ...], found: Dumps) -> None:
    members = {
        rank: dump
        for rank, dump in found.dumps.items()
        if name in dump.last and tuple(dump.groups.get(name, ())) == ranks
    }
    expected = sorted(ranks) or sorted(members)
    if len(members) < 2:
        return
    furthest = max(dump.last[name] for dump in members.values())
    shown = name.split("/")[-1]
    lagging = [rank for rank in sorted(members) if members[rank].last[name] < furthest]
    ahead = [rank for rank in members if members[rank].last[name] == furthest]
    if _mismatch(name, shown, members, found):
        return
    if lagging:
        _waits(name, furthest, ahead, lagging, members, found)
    if lagging and len(lagging) <= len(members) / 2:
        op = _issued(members[ahead[0]], name, furthest)
        stamp = _created(members[ahead[0]], name, furthest)
        for rank in lagging:
            text = (
                f"collective lagging: pg={shown} rank={rank} never issued seq={furthest} "
                f"{_told(op) if op else 'collective'} "
                f"that {len(ahead)} ranks wait in; its last is {members[rank].last[name]}"
            )
            found.facts.append(_fact(text, members[ahead[0]], stamp))
        found.lagging += [rank for rank in lagging if rank not in found.lagging]
    active = _active_only(found)
    absent = [rank for rank in expected if rank not in found.dumps or (active and rank not in members)]
    if absent and not lagging and len(absent) <= len(expected) / 2:
        issued = [(d, _issued(d, name, furthest)) for d in members.values()]
        waiting = [d for d, op in issued if op is not None and op.state != "completed"]
        if len(waiting) >= len(members) / 2:
            stamp = _created(waiting[0], name, furthest)
            for rank in absent:
                text = (
                    f"collective lagging: pg={shown} rank={rank} never issued seq={furthest} collective "
                    f"that others wait in; it {'has no record of the group' if rank in found.dumps else 'left no dump'}"
                )
                found.facts.append(_fact(text, waiting[0], stamp))
            found.lagging += [rank for rank in absent if rank not in found.lagging]


def _waits(
    name: str, seq: int, ahead: Sequence[int], lagging: Sequence[int], members: dict[int, Dump], found: Dumps
) -> None:
    """Note who of a group is in a collective that others never came to."""
    issued = {rank: _issued(members[rank], name, seq) for rank in ahead}
    stuck = {rank: op for rank, op in issued.items() if op is not None and op.state != "completed"}
    if stuck:
        op = _told(stuck[min(stuck)])
        found.waits.append(Wait(name, seq, op, tuple(sorted(stuck)), tuple(lagging)))


def _active_only(found: Dumps) -> bool:
    """Were only collectives that still ran written down? Then a rank without any of a group waits in none of it."""
    return all(entry.state != "completed" for dump in found.dumps.values() for entry in dump.entries)


def _compare_pairs(found: Dumps) -> None:
    """Point-to-point calls that wait for each other: two ranks that both send, or both receive, and nobody answers."""
    groups: dict[str, dict[tuple[str, int, int], tuple[Dump, Call]]] = {}
    for dump in found.dumps.values():
        for entry in dump.entries:
            if entry.is_p2p and entry.state != "completed" and (call := _PAIR.search(entry.op)):
                me, peer = whole(call["me"]), whole(call["peer"])
                if me is not None and peer is not None:
                    groups.setdefault(entry.group, {})[call["op"], me, peer] = (dump, entry)
    for name, waiting in sorted(groups.items()):
        _compare_waiting(name, waiting, found)


def _compare_waiting(name: str, waiting: dict[tuple[str, int, int], tuple[Dump, Call]], found: Dumps) -> None:
    for op, me, peer in sorted(waiting):
        if me < peer and (op, peer, me) in waiting:
            answer = "recv" if op == "send" else "send"
            if (answer, me, peer) in waiting or (answer, peer, me) in waiting:
                continue
            dump, entry = waiting[op, me, peer]
            other = waiting[op, peer, me][0]
            text = (
                f"collective mismatch: pg={name.split('/')[-1]} seq={entry.p2p_seq} rank={dump.rank} "
                f"issued {op} to rank {other.rank} where 1 ranks issued {op} back, and neither posted the {answer}"
            )
            found.facts.append(_fact(text, dump, _created(dump, name, entry.seq)))


def _mismatch(name: str, shown: str, members: dict[int, Dump], found: Dumps) -> bool:
    """The first sequence number at which the ranks issued different things; True when there is one."""
    for seq in sorted({seq for dump in members.values() for seq in dump.issued.get(name, ())}):
        issued = {rank: op for rank, dump in members.items() if (op := _issued(dump, name, seq)) is not None}
        if len({(op.op, op.sizes) for op in issued.values()}) < 2:
            continue
        kinds = {rank: (_told(op), op.sizes if _fixed_size(op.op) else "") for rank, op in issued.items()}
        if len(set(kinds.values())) < 2 or all(op.state == "completed" for op in issued.values()):
            continue
        counts = Counter(kinds.values())
        usual = max(counts, key=lambda kind: (counts[kind], kind))
        created = {rank: stamp.naive for rank in kinds if (stamp := _created(members[rank], name, seq))}
        for rank in sorted(kinds):
            if kinds[rank] != usual:
                odd = kinds[rank]
                text = (
                    f"collective mismatch: pg={shown} seq={seq} rank={rank} issued {odd[0]} {odd[1]} "
                    f"where {counts[usual]} ranks issued {usual[0]} {usual[1]}"
                )
                if rank in created:
                    text += f" elapsed_ms={(created[rank] - min(created.values())) * 1000:.0f}"
                found.facts.append(_fact(text, members[rank], _created(members[rank], name, seq)))
        return True
    return False


def _fixed_size(op: str) -> bool:
    """Must every rank bring a tensor of the same size to this operation?"""
    return op.split(":")[-1].lower().replace("_", "").startswith(_SAME_SIZES)


def _issued(dump: Dump, name: str, seq: int) -> Call | None:
    """What a rank issued in a group under a sequence number."""
    return dump.issued.get(name, {}).get(seq)


def _told(call: Call) -> str:
    return (call.op or "?").replace(" ", "_")


def _created(dump: Dump, name: str, seq: int) -> Stamp | None:
    """When the rank issued it first."""
    created = next((e.created_ns for e in dump.entries if e.seq == seq and e.group == name), 0)
    return Stamp("epoch", created / 1e9, 0) if created > 0 else None


def _fact(text: str, dump: Dump, stamp: Stamp | None) -> Fact:
    return Fact(printable(text), 0, 1, stamp, None, "collective", {"stream": dump.stream.name})


def watchdog_mismatch(placed: Sequence[Placed]) -> list[Fact]:
    """Ranks whose watchdogs name another operation, or other sizes, at the same sequence number of the same group."""
    said: dict[tuple[str, str], dict[int, tuple[str, str, Placed]]] = {}
    for one in placed:
        captures = one.hit.captures
        if one.aside or one.rank is None or not captures.get("seq", "").isdigit() or not captures.get("op"):
            continue
        numbers = _NUMEL.search(one.hit.text)
        if numbers:
            shape = f"[{numbers[1]},{numbers[2]}]" if _fixed_size(captures["op"]) else ""
            group = said.setdefault((captures.get("pg", ""), captures["seq"]), {})
            group.setdefault(one.rank, (captures["op"], shape, one))
    facts = []
    for (group_name, seq), ranks in sorted(said.items()):
        counts = Counter((op, sizes) for op, sizes, _ in ranks.values())
        if len(counts) < 2 or len(ranks) < 3:
            continue
        usual = max(counts, key=lambda kind: (counts[kind], kind))
        # Whoever came first waited from then on, however late the others came to something else.
        began = min((one.at - one.elapsed for _, _, one in ranks.values() if one.at is not None), default=None)
        for rank, (op, sizes, one) in sorted(ranks.items()):
            if (op, sizes) != usual:
                waited = one.elapsed if began is None or one.at is None else one.at - began
                text = (
                    f"collective mismatch: pg={group_name or 'unknown'} seq={seq} rank={rank} "
                    f"issued {op} {sizes or '[]'} "
                    f"where {counts[usual]} ranks issued {usual[0]} {usual[1]} elapsed_ms={waited * 1000:.0f}"
                )
                fields = {"stream": one.hit.stream}
                facts.append(Fact(text, one.hit.offset, one.hit.line, one.hit.stamp, one.node, "collective", fields))
    return facts


def still_preparing(placed: Sequence[Placed]) -> list[Fact]:
    """One rank was still preparing data, by its bar, when the time-outs of those that waited for it ran out."""
    facts = []
    for stream in sorted({one.hit.stream for one in placed if one.rule.id == BAR}):
        own = [one for one in placed if one.hit.stream == stream]
        bars = [one for one in own if one.rule.id == BAR]
        gave_up = [one.hit.offset for one in own if _GAVE_UP.search(one.hit.text)]
        last = max(
            (b for b in bars if not gave_up or b.hit.offset < min(gave_up)), key=lambda b: b.hit.offset, default=None
        )
        if last is None or not gave_up or last.hit.captures["percent"] == "100":
            continue
        what = " ".join(last.hit.captures["what"].split()).rstrip(" :(")
        text = (
            f"collective preparing: {what} was at {last.hit.captures['percent']} % when the other ranks gave up waiting"
        )
        place = {"stream": stream}
        facts.append(Fact(text, last.hit.offset, last.hit.line, last.hit.stamp, last.node, "collective", place))
    return facts


def who_is_missing(
    placed: Sequence[Placed],
    dumps: Dumps,
    places: Places,
    streams: Sequence[Stream],
    lacking: Collection[int] = (),
) -> Missing:
    """Ranks that the others waited for, and what they said last. `lacking`: ranks that a report of the others lists."""
    missing = _by_dumps(dumps) or _by_report(placed, places, lacking) or _by_watchdog(placed, places)
    if missing is None:
        return _by_peers(placed, places, streams) or Missing()
    return with_last_words(missing, places, streams)


def with_last_words(missing: Missing, places: Places, streams: Sequence[Stream]) -> Missing:
    """With the nodes of the ranks that are missing, and what these said last."""
    if not missing.ranks:
        return missing
    missing.nodes = tuple(sorted({places.ranks[rank] for rank in missing.ranks if rank in places.ranks}))
    if len(missing.ranks) <= 8:
        said = last_words(_logs_of(missing.ranks, places, streams))
        missing.facts += [_silence(rank, words, places) for rank, words in sorted(said.items())]
    return missing


def _logs_of(ranks: Sequence[int], places: Places, streams: Sequence[Stream]) -> Iterator[tuple[Stream, Sequence[int]]]:
    """The logs in which some of the ranks may speak for themselves: never those of other nodes or ranks."""
    for stream in streams:
        if stream.source is Source.APPLOG:
            node = places.stream_node(stream)
            own = [rank for rank in ranks if node is None or places.ranks.get(rank) in (None, node)]
            own = own if stream.rank is None else [rank for rank in own if rank == stream.rank]
            if own:
                yield stream, own


def _by_dumps(dumps: Dumps) -> Missing | None:
    return Missing(tuple(sorted(dumps.lagging)), by="flight recorder") if dumps.lagging else None


def _by_watchdog(placed: Sequence[Placed], places: Places) -> Missing | None:
    """Ranks without a watchdog line of the collective that nearly all others timed out in."""
    waited: dict[tuple[str, str], set[int]] = {}
    for one in placed:
        captures = one.hit.captures
        numbered = whole(captures.get("seq", "")) is not None
        if one.aside or not numbered or not captures.get("elapsed_ms") or one.rank is None:
            continue
        waited.setdefault((captures.get("pg", ""), captures["seq"]), set()).add(one.rank)
    everyone = set(places.ranks)
    if not waited or len(everyone) < 2:
        return None
    (_group, seq), ranks = max(waited.items(), key=lambda item: (len(item[1]), item[0]))
    reporters = set().union(*waited.values())
    absent = everyone - reporters
    if absent and len(ranks) >= 0.6 * len(everyone) and len(absent) <= max(1, len(everyone) // 4):
        return Missing(tuple(sorted(absent)), by="watchdog", seq=seq)
    # In a mesh each row of ranks times out in a collective of its own: who is in none of them came to none.
    if absent and len(everyone) >= 8 and len(absent) <= len(everyone) // 8:
        return Missing(tuple(sorted(absent)), by="watchdog")
    return None


def _by_report(placed: Sequence[Placed], places: Places, lacking: Collection[int]) -> Missing | None:
    """Ranks of which a report of the others says that they did not come (desync report, monitored barrier, stall)."""
    named = {rank for rank in lacking if rank in places.ranks}
    for one in placed:
        listed = re.findall(r"\d+", one.hit.captures.get("absent", "")) if one.aside is None else []
        named |= {rank for text in listed if (rank := whole(text)) is not None and rank in places.ranks}
    if not named or len(named) > max(1, len(places.ranks) // 4):
        return None
    return Missing(tuple(sorted(named)), by="report of the ranks")


def slowest(placed: Sequence[Placed], since: float, places: Places) -> Missing:
    """The one node whose ranks were found to be slower than the others, again and again since the job slowed down."""
    reports = []
    for one in placed:
        if one.aside is None and one.at is not None and one.at >= since:
            numbers = [whole(text) for text in re.findall(r"\d+", one.hit.captures.get("slow", ""))]
            nodes = {places.ranks.get(rank) if rank is not None else None for rank in numbers}
            if nodes:
                reports.append(nodes)
    named = Counter(node for nodes in reports for node in nodes)
    top = max(named, key=lambda node: (named[node], node or ""), default=None)
    if top is None or named[top] < 2 or named[top] < 0.6 * len(reports) or len(named) > 1:
        return Missing()
    return Missing((), (top,), by="reports of stragglers")


def _by_peers(placed: Sequence[Placed], places: Places, streams: Sequence[Stream]) -> Missing | None:
    """The node that several others lost their connections to, and that complains of nothing itself.

    Who lost a connection, or timed out, closes its own ones next, and is then named in turn: only who is named and was
    silent may have been first. Its silence says something only when its log was read, or when all others have spoken.
    """
    lost: dict[str, set[str]] = {}
    complain: set[str | None] = set()
    heard = {places.stream_node(stream) for stream in streams if stream.source is Source.APPLOG}
    for one in placed:
        if one.hit.source is not Source.APPLOG or one.aside:
            continue
        heard.add(one.node)
        if one.rule.role is not Role.SYMPTOM or one.rule.id.startswith(_OF_OTHERS):
            continue
        complain.add(one.node)
        if one.peer and one.node and one.peer != one.node and not one.rule.id.startswith(_TO_MASTER):
            lost.setdefault(one.node, set()).add(one.peer)
    named = Counter(peer for peers in lost.values() for peer in peers)
    silent = [node for node in sorted(named) if node not in complain]
    if len(silent) != 1 or named[silent[0]] < 2:
        return None
    if silent[0] not in heard and len(lost) < len(places.attempt.nodes) - 1:
        return None
    return Missing((), (silent[0],), by="words of its peers")


def _silence(rank: int, words: Words, places: Places) -> Fact:
    said = printable(words.line.text)[:200]
    phase = next((name for name, regex in _PHASES if regex.search(said)), "unknown")
    text = f"collective silent: rank={rank} phase={phase} last said: {said}"
    fields = {"stream": words.stream.name}
    return Fact(text, words.offset, words.number, words.line.stamp, places.ranks.get(rank), "collective", fields)
