"""Forms of the pages: what they take, and what they say when they can't."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

from django import forms
from django.core.files.uploadedfile import UploadedFile

SCHEDULERS = (("slurm", "Slurm"), ("kueue", "Kueue"), ("static", "Another, or none"))
ARCHIVES = (".tar", ".tar.gz", ".tgz", ".tar.zst", ".zip")
DETAILS = (
    "name", "workload_id", "scheduler", "cluster", "user", "nodes", "gpus_per_node", "started_at", "ended_at", "state",
    "exit_code",
)  # fmt: skip
"""Fields about the attempt, in the order of the page."""
MAX_NODES = 20_000


NODES = forms.Textarea(attrs={"rows": 2, "spellcheck": "false"})
MOMENT = forms.TextInput(attrs={"placeholder": "2026-11-03 04:22:31", "spellcheck": "false"})


class ManyFiles(forms.FileInput):
    allow_multiple_selected = True


class FilesField(forms.FileField):
    """Several files at once; each must have a name and something in it."""

    widget = ManyFiles

    def clean(self, data: Any, initial: Any = None) -> list[UploadedFile]:
        files = data if isinstance(data, (list, tuple)) else [data] if data else []
        if not files:
            raise forms.ValidationError("Choose an archive or at least one file.", code="required")
        return [super(FilesField, self).clean(file, initial) for file in files]


class UploadForm(forms.Form):
    """One archive, or loose files with what is known about the attempt. Everything but the files may stay empty."""

    files = FilesField(error_messages={"empty": "One of these files is empty."})
    name = forms.CharField(label="Workload", required=False, max_length=253)
    workload_id = forms.CharField(label="Job id", required=False, max_length=253)
    scheduler = forms.ChoiceField(required=False, choices=SCHEDULERS, initial="static")
    cluster = forms.CharField(required=False, max_length=200)
    user = forms.CharField(required=False, max_length=253)
    nodes = forms.CharField(
        required=False, max_length=400_000, help_text="Parted by spaces, commas or new lines.", widget=NODES
    )
    gpus_per_node = forms.IntegerField(
        label="GPUs a node", required=False, min_value=1, max_value=64, widget=forms.TextInput
    )
    started_at = forms.CharField(label="Started (UTC)", required=False, max_length=40, widget=MOMENT)
    ended_at = forms.CharField(label="Ended (UTC)", required=False, max_length=40, widget=MOMENT)
    state = forms.CharField(
        label="Scheduler's state", required=False, max_length=128, help_text="For example FAILED or TIMEOUT."
    )
    exit_code = forms.CharField(required=False, max_length=64, help_text="As the scheduler gives it, for example 1:0.")

    def clean_nodes(self) -> list[str]:
        nodes = [node for node in re.split(r"[\s,;]+", self.cleaned_data["nodes"]) if node]
        if len(nodes) > MAX_NODES:
            raise forms.ValidationError(f"At most {MAX_NODES:,} nodes.")
        for node in nodes:
            if not re.fullmatch(r"[A-Za-z0-9_.\[\],-]{1,253}", node):
                raise forms.ValidationError(
                    f"\u201c{node[:60]}\u201d is no host name. Names are parted by spaces, commas or new lines."
                )
        return list(dict.fromkeys(nodes))

    def clean_started_at(self) -> datetime | None:
        return self._moment("started_at")

    def clean_ended_at(self) -> datetime | None:
        return self._moment("ended_at")

    def clean(self) -> dict[str, Any]:
        data = super().clean() or {}
        start, end = data.get("started_at"), data.get("ended_at")
        if start and end and end < start:
            self.add_error("ended_at", "The end lies before the start.")
        return data

    @property
    def is_archive(self) -> bool:
        """Whether one archive was sent; otherwise loose files."""
        files = self.cleaned_data["files"]
        return len(files) == 1 and files[0].name.lower().endswith(ARCHIVES)

    def _moment(self, name: str) -> datetime | None:
        text = self.cleaned_data[name].strip()
        if not text:
            return None
        try:
            moment = datetime.fromisoformat(text.replace(" UTC", "Z"))
        except ValueError:
            raise forms.ValidationError("Write it as 2026-11-03 04:22:31, in UTC.") from None
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def number(value: str | None) -> int | None:
    """What a field of a form holds, when it is a number that an id can be."""
    return int(value) if value and value.isascii() and value.isdecimal() and len(value) < 19 else None


def incident_number(text: str) -> int | None:
    """From `97`, `INC-97` or the address of its page."""
    text = text.strip().rstrip("/")
    tail = text.rsplit("/", 1)[-1] if "/incidents/" in text else text
    return number(tail.upper().removeprefix("INC-"))
