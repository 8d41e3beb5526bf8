"""Upload: one archive, or loose log files with what is known of their attempt; then on to the attempt."""

from __future__ import annotations

from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse

from triage.access.rights import responders
from triage.services.bundles import Imported, ImportRefused, LooseDetails, import_loose_files, import_upload
from triage.web.forms import DETAILS, UploadForm


@responders
def upload(request: HttpRequest) -> HttpResponse:
    """The form, and what became of it. A script that sends it learns of the attempt's address by `X-Location`."""
    refusals: list[str] = []
    form = UploadForm(request.POST or None, request.FILES or None) if request.method == "POST" else UploadForm()
    if request.method == "POST" and form.is_valid():
        try:
            taken = _receive(request, form)
        except ImportRefused as error:
            refusals.append(str(error))
        else:
            return _land(request, taken)
    status = 422 if request.method == "POST" else 200
    context = {
        "section": "upload",
        "form": form,
        "fields": [form[name] for name in DETAILS],
        "refusals": refusals,
        "limit": settings.FAULTLINE_MAX_UPLOAD_BYTES,
    }
    return render(request, "upload/page.html", context, status=status)


def _receive(request: HttpRequest, form: UploadForm) -> Imported:
    data = form.cleaned_data
    if form.is_archive:
        return import_upload(data["files"][0], actor=request.user)
    details = LooseDetails(**{name: data[name] for name in DETAILS if data[name] not in (None, "")})
    return import_loose_files(data["files"], details, actor=request.user)


def _land(request: HttpRequest, taken: Imported) -> HttpResponse:
    if not taken.requested:
        messages.info(request, "This very bundle had been uploaded before. Here is its attempt.")
    elif not taken.created:
        messages.info(request, "The attempt was known already. The files were added to it.")
    address = reverse("attempt", args=[taken.attempt.pk])
    if request.headers.get("X-Requested-With") == "fetch":
        answer = HttpResponse(status=204)
        answer.headers["X-Location"] = address
        return answer
    return HttpResponseRedirect(address)
