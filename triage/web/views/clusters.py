"""Clusters and their sources: what is set up, whether it works, and setting it up. For administrators."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST

from connectors.base import ConfigError
from connectors.registry import FACTORIES, example
from triage.access.rights import administrators
from triage.models import ConfiguredSource
from triage.selectors import clusters as select
from triage.services import clusters as service
from triage.services.checking import start_check
from triage.services.sources import SETTINGS, configuration, page_rules
from triage.web.htmx import fragment

KINDS = {
    "slurm": ("Slurm", "finds attempts in accounting; output of jobs, logs of the daemons"),
    "kueue": ("Kueue", "finds attempts on Kubernetes; placements, events"),
    "pods": ("Pods", "logs of pods through the Kubernetes API"),
    "loki": ("Loki", "lines of jobs, kernels and systems"),
    "promql": ("Prometheus and the like", "metrics of GPUs, networks and hosts"),
    "files": ("Files", "logs in folders; bundles that appear in watched ones"),
}
_SECRET = re.compile(r"""(?m)(\b(?:password|token)\s*=\s*)(?:"(?!env:|file:)[^"\n]*"?|'(?!env:|file:)[^'\n]*'?)""")


@administrators
def index(request: HttpRequest) -> HttpResponse:
    """Every cluster, where it is set up, and what is wrong."""
    found = configuration()
    rows = select.list_clusters(found)
    about = [error for error in found.errors if "[clusters." not in error]
    context = {"section": "clusters", "rows": rows, "path": found.path, "errors": about}
    return render(request, "clusters/index.html", context)


@administrators
def page(request: HttpRequest, name: str) -> HttpResponse:
    """One cluster: its sources, their searches, and the newest check."""
    row = _row_or_404(name)
    context = {"row": row, "kinds": KINDS, "changes": select.get_changes(name), **_check(name)}
    return render(request, "clusters/page.html", {"section": "clusters", "path": configuration().path, **context})


@require_POST
@administrators
def check(request: HttpRequest, name: str) -> HttpResponse:
    """Has the workers ask every source once."""
    _row_or_404(name)
    try:
        start_check(name, request.user)
    except ConfigError as error:
        messages.error(request, str(error))
    return redirect(f"{reverse('cluster', args=[name])}#check")


@administrators
def progress(request: HttpRequest, name: str) -> HttpResponse:
    """How far the check is."""
    _row_or_404(name)
    context = {"row": {"name": name}, **_check(name)}
    found = context["check"]
    state = json.dumps([found.sources, found.unanswered] if found else None, default=vars)
    return fragment(request, "clusters/_check.html", context, f"{reverse('cluster', args=[name])}#check", state)


@administrators
def add(request: HttpRequest) -> HttpResponse:
    """A new cluster."""
    return _settings(request, "", dict.fromkeys(SETTINGS, ""), new=True)


@administrators
def edit(request: HttpRequest, name: str) -> HttpResponse:
    """A cluster's own settings."""
    row = _row_or_404(name)
    kept = {key: getattr(row.page, key) if row.page is not None else "" for key in SETTINGS}
    return _settings(request, name, kept, new=False)


def _settings(request: HttpRequest, name: str, values: dict[str, str], *, new: bool) -> HttpResponse:
    errors: Mapping[str, list[str]] = {}
    if request.method == "POST":
        values = {key: request.POST.get(key, "") for key in SETTINGS}
        name = request.POST.get("name", "") if new else name
        try:
            row = service.save_cluster(name, values, request.user, new=new)
        except service.SetupRefused as refused:
            errors = refused.errors
        else:
            messages.success(request, f"Saved {row.name}." + (" Now add a source that finds attempts." if new else ""))
            return redirect("cluster", row.name)
    context = {"section": "clusters", "name": name, "values": values, "errors": errors, "new": new}
    return render(request, "clusters/settings.html", context, status=422 if errors else 200)


@require_POST
@administrators
def remove(request: HttpRequest, name: str) -> HttpResponse:
    """Removes what pages set up of a cluster."""
    if service.remove_cluster(name, request.user):
        messages.success(request, f"What was set up here of {name} is removed. Its attempts stay.")
    return redirect("clusters")


@administrators
def add_source(request: HttpRequest, name: str) -> HttpResponse:
    """A new source; its kind is chosen first."""
    _row_or_404(name)
    kind = request.GET.get("kind", "")
    if kind not in FACTORIES:
        context = {"section": "clusters", "name": name, "kinds": KINDS}
        return render(request, "clusters/kinds.html", context)
    values = {"name": kind, "kind": kind, "text": example(kind), "version": 0}
    return _source(request, name, values, None)


@administrators
def edit_source(request: HttpRequest, name: str, source: str) -> HttpResponse:
    """A source that was set up here."""
    row = ConfiguredSource.objects.filter(cluster__name=name, name=source).first()
    if row is None:
        raise Http404("no such source is set up here")
    values = {"name": row.name, "kind": row.kind, "text": row.text, "version": row.version}
    return _source(request, name, values, row)


def _source(request: HttpRequest, cluster: str, values: dict[str, Any], row: ConfiguredSource | None) -> HttpResponse:
    errors: Mapping[str, list[str]] = {}
    stale = False
    if request.method == "POST":
        sent = request.POST
        version = int(sent["version"]) if sent.get("version", "").isascii() and sent.get("version", "").isdigit() else 0
        values |= {"text": sent.get("text", ""), "version": version}
        values["name"] = row.name if row is not None else sent.get("name", "")
        try:
            kept = service.save_source(
                cluster, values["name"], values["kind"], values["text"], request.user, version=version
            )
        except service.SetupRefused as refused:
            errors, stale = refused.errors, refused.stale
            if stale and row is not None:
                values["version"] = row.version  # who has looked at it may save over it
            values["text"] = _SECRET.sub(r'\1""', values["text"])  # what was typed by mistake is not sent back
        else:
            messages.success(request, f"Saved {kept.name}. Check the cluster to see that it works.")
            return redirect("cluster", cluster)
    context = {
        "section": "clusters",
        "cluster": cluster,
        "row": row,
        "values": values,
        "errors": errors,
        "stale": stale,
        "kind": KINDS[values["kind"]],
        "folders": page_rules().folders,
    }
    return render(request, "clusters/source.html", context, status=422 if errors else 200)


@require_POST
@administrators
def remove_source(request: HttpRequest, name: str, source: str) -> HttpResponse:
    """Removes a source that was set up here."""
    if service.remove_source(name, source, request.user):
        messages.success(request, f"{source} is removed. What it collected stays.")
    return redirect("cluster", name)


def _row_or_404(name: str) -> select.ClusterRow:
    row = select.get_cluster(configuration(), name)
    if row is None:
        raise Http404("no such cluster is set up")
    return row


def _check(name: str) -> dict[str, Any]:
    found = select.get_check(name)
    return {"check": found, "poll_url": reverse("cluster-progress", args=[name]), "going_on": found and found.going_on}
