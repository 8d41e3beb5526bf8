"""The admin site: for looking. Triage data is written by services alone; clusters' settings may be edited."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.contrib.auth.admin import UserAdmin
from django.contrib.auth.models import Group, User
from django.db.models import Model
from django.http import HttpRequest

from triage.access.viewer import role_of
from triage.models import (
    Attempt,
    Cluster,
    Collection,
    Comment,
    Diagnosis,
    Discovery,
    Incident,
    Person,
    ShareLink,
    Stream,
    TeamReach,
    TimelineEvent,
    Verdict,
    Workload,
)


class ReadOnlyAdmin(admin.ModelAdmin):
    """Shows, never changes."""

    def has_add_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False


@admin.register(Cluster)
class ClusterAdmin(admin.ModelAdmin):
    list_display = ["name", "time_zone", "created_at"]
    search_fields = ["name"]

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False


def _show(*columns: str, **options: Any) -> type[ReadOnlyAdmin]:
    return type("ShowAdmin", (ReadOnlyAdmin,), {"list_display": columns, "show_full_result_count": False, **options})


admin.site.register(
    Workload, _show("workload_id", "name", "user", "scheduler", "cluster", list_select_related=["cluster"])
)
admin.site.register(
    Attempt,
    _show(
        "workload", "number", "state", "outcome", "domain", "sub_domain", "triage_state", "triage_reason", "sort_at",
        list_select_related=["workload"], list_filter=["triage_state", "outcome", "domain"], exclude=["search"],
    ),
)  # fmt: skip
admin.site.register(
    Collection, _show("attempt", "connector", "label", "state", "tries", "finished_at", list_filter=["state"])
)
admin.site.register(Stream, _show("name", "attempt", "source", "node", "rank", "size", "lines", "masked"))
admin.site.register(
    Diagnosis, _show("title", "attempt", "outcome", "domain", "sub_domain", "rule", "ruleset", "created_at")
)
admin.site.register(Discovery, _show("connector", "cluster", "last_run_at", "last_error"))
admin.site.register(Verdict, _show("attempt", "kind", "title", "by", "created_at", "ended_at", list_filter=["kind"]))
admin.site.register(
    Incident, _show("__str__", "title", "status", "assignee", "severity", "attempts_count", list_filter=["status"])
)
admin.site.register(Comment, _show("created_at", "author", "attempt", "incident", "edited_at", "deleted_at"))
admin.site.register(
    ShareLink, _show("created_at", "by", "attempt", "incident", "expires_at", "revoked_at", exclude=["nonce"])
)
admin.site.register(TimelineEvent, _show("happened_at", "kind", "actor", "attempt", "payload"))


class PersonInline(admin.StackedInline):
    model = Person
    can_delete = True
    verbose_name_plural = "role"


class TeamReachInline(admin.TabularInline):
    model = TeamReach
    extra = 1
    verbose_name_plural = "what its people see"


class PeopleAdmin(UserAdmin):
    """Local accounts, roles and teams. What Django calls permissions has no meaning here."""

    inlines = [PersonInline]
    list_display = ["username", "first_name", "last_name", "role", "is_active", "last_login"]
    list_filter = ["is_active", "person__role", "groups"]
    list_select_related = ["person"]
    fieldsets = [
        (None, {"fields": ["username", "password"]}),
        ("Person", {"fields": ["first_name", "last_name", "email"]}),
        ("May sign in; is an admin of everything; teams", {"fields": ["is_active", "is_superuser", "groups"]}),
        ("Dates", {"fields": ["last_login", "date_joined"]}),
    ]

    @admin.display(ordering="person__role")
    def role(self, user: User) -> str:
        return role_of(user).label


class TeamAdmin(admin.ModelAdmin):
    """Teams. The first one that says what it sees ends that everybody sees everything."""

    inlines = [TeamReachInline]
    fields = ["name"]
    search_fields = ["name"]


admin.site.unregister([User, Group])
admin.site.register(User, PeopleAdmin)
admin.site.register(Group, TeamAdmin)
