"""Nodes: the fleet with the worst ones, and a page for each; what people note of one."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any

from django.contrib import messages
from django.contrib.auth.models import User
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.http import urlencode

from triage.access.rights import needs, signed_in
from triage.access.roles import Role
from triage.models import Cluster
from triage.selectors import nodes as select
from triage.selectors.filters import printable_value
from triage.selectors.query import Query, Term
from triage.services import nodes as service
from triage.templatetags.fleet import node_url
from triage.web import figures, inbox, undo
from triage.web.tables import csv_answer

MAX_CSV = 100_000
CSV_COLUMNS = (
    "node", "cluster", "to_blame", "attempts", "share", "share_low", "share_high", "beside_the_others",
    "gpu_hours_lost", "last_to_blame", "state",
)  # fmt: skip


@needs(Role.VIEWER, write=Role.RESPONDER)
def index(request: HttpRequest) -> HttpResponse:
    """The fleet: the nodes that were to blame, those first of which it is most certain that chance is no explanation.

    With `?name=` the page of one whose name can't stand in a path.
    """
    if "name" in request.GET:
        return _page(request, request.GET["name"])
    clusters = [one for one in Cluster.objects.exclude(name="").order_by("name") if one.name.isprintable()]
    cluster = next((one for one in clusters if one.name == request.GET.get("cluster")), None)
    search = printable_value(request.GET.get("q", ""))
    fleet = select.fleet(cluster, search=search)
    scale = figures.scale_for([node.share for node in fleet.nodes], 6, 168)
    context = {
        "section": "nodes",
        "fleet": fleet,
        "rows": [(node, scale.interval(node.share)) for node in fleet.nodes],
        "rest": scale.at(fleet.share.share),
        "scale": scale,
        "clusters": clusters,
        "cluster": cluster,
        "search": search,
        "csv_url": f"{reverse('nodes-csv')}?{urlencode({'q': search, 'cluster': cluster.name if cluster else ''})}",
        "worse": sum(node.standing == select.Standing.WORSE for node in fleet.nodes),
        "days": select.DAYS,
    }
    return render(request, "node/fleet.html", context)


@signed_in
def as_csv(request: HttpRequest) -> HttpResponse:
    """The fleet as the page narrows it, every node of it."""
    cluster = Cluster.objects.filter(name=request.GET.get("cluster", "")).exclude(name="").first()
    fleet = select.fleet(cluster, search=printable_value(request.GET.get("q", "")), limit=MAX_CSV)
    rows = (
        (
            node.name, node.cluster, node.blamed, node.attempts, round(node.share.share, 6), round(node.share.low, 6),
            round(node.share.high, 6), node.standing.value, round(node.lost, 3),
            node.last.isoformat() if node.last else None, "drained" if node.drained else "in service",
        )
        for node in fleet.nodes
    )  # fmt: skip
    return csv_answer("nodes", CSV_COLUMNS, rows)


@needs(Role.VIEWER, write=Role.RESPONDER)
def page(request: HttpRequest, name: str) -> HttpResponse:
    """One node; a POST notes something of it. A name in several clusters shows the one that used it last."""
    return _page(request, name)


def _note(request: HttpRequest, name: str, cluster: Cluster) -> HttpResponse:
    """Notes something, drains the node or returns it to service: by the button that was pressed."""
    text = request.POST.get("text", "")
    try:
        match request.POST.get("action"):
            case "drain":
                _offer(request, name, cluster, service.drain(cluster, name, request.user, text), drained=True)
            case "return":
                done = service.return_to_service(cluster, name, request.user, text)
                _offer(request, name, cluster, done, drained=False)
            case _:
                service.add_note(cluster, name, request.user, text)
                messages.success(request, "Noted")
    except service.NodeRefused as error:
        messages.error(request, str(error))
    return redirect(node_url(name, cluster.name))


def _offer(request: HttpRequest, name: str, cluster: Cluster, done: bool, *, drained: bool) -> None:
    if not done:
        messages.info(request, "It was drained already" if drained else "It was in service already")
        return
    said = "Recorded as drained" if drained else "Recorded as back in service"
    undo.offer(request, "node-service", said, node=name, cluster=cluster.pk, drained=drained)


@undo.undoes("node-service")
def _service_back(user: User, facts: dict[str, Any]) -> str:
    cluster = Cluster.objects.filter(pk=facts["cluster"]).first()
    if cluster is None:
        raise undo.NotUndone("The cluster is gone.")
    if facts["drained"]:
        done = service.return_to_service(cluster, facts["node"], user, "Taken back: drained by mistake.")
    else:
        done = service.drain(cluster, facts["node"], user, "Taken back: returned by mistake.")
    if not done:
        raise undo.NotUndone("Somebody changed it meanwhile.")
    return "Recorded as in service again" if facts["drained"] else "Recorded as drained again"


def _lists(node: select.NodePage) -> dict[date, str]:
    """The failures of each day on which one ended here."""
    own = (Term("on", node.name), *((Term("cluster", node.cluster.name),) if node.cluster.name else ()))
    days = [day.day for day in node.days if day.failed]
    spans = [(Term("after", day.isoformat()), Term("before", (day + timedelta(days=1)).isoformat())) for day in days]
    return {day: inbox.list_address(str(Query((*own, *span)))) for day, span in zip(days, spans, strict=True)}


def _page(request: HttpRequest, name: str) -> HttpResponse:
    if not name or "\x00" in name:
        raise Http404
    asked = request.GET.get("cluster")
    if request.method == "POST" and (clusters := select.clusters_of(name)):
        return _note(request, name, next((one for one in clusters if one.name == asked), clusters[0]))
    node = select.node_page(name, asked)
    if node is None:
        return render(request, "node/unknown.html", {"section": "nodes", "name": name}, status=404)
    lists = _lists(node)
    context: dict[str, Any] = {
        "section": "nodes",
        "node": node,
        "strip": figures.strip(node.days, [event.happened_at.date() for event in node.events], lists),
        "since": node.days[0].day,
        "most_faults": select.MAX_FAULTS,
        "shown_faults": select.SHOWN_FAULTS,
        "most_recent": select.RECENT,
        "workloads_since": (node.workloads_since or node.days[0].day).isoformat(),
        "bad_days": [(day, lists[day.day]) for day in reversed(node.days) if day.failed],
        "days": select.DAYS,
    }
    if node.attempts:
        scale = figures.scale_for([node.share, node.fleet], 110, 420)
        context |= {
            "scale": scale,
            "own": scale.interval(node.share, 28),
            "others": scale.interval(node.fleet, 62),
        }
    return render(request, "node/page.html", context)
