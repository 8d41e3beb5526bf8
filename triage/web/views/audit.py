"""The audit: who changed what. For admins."""

from __future__ import annotations

from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from triage.access.rights import administrators
from triage.selectors import audit as select
from triage.selectors.filters import printable_value
from triage.web.forms import number


@administrators
def index(request: HttpRequest) -> HttpResponse:
    """`?who=&action=&subject=&number=&before=`."""
    asked = {name: printable_value(request.GET.get(name, "")) for name in ("who", "action", "subject", "number")}
    page = select.audit_page(select.AuditFilter(**asked), number(request.GET.get("before", "")))
    query = urlencode({name: value for name, value in asked.items() if value})
    context = {
        "section": "audit",
        "page": page,
        "asked": asked,
        "narrowed": bool(query),
        "query": query,
        "actions": sorted(select.LABELS.items(), key=lambda pair: pair[1]),
        "subjects": sorted(select.SUBJECTS.items(), key=lambda pair: pair[1]),
    }
    return render(request, "audit/page.html", context)
