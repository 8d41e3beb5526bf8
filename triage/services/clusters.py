"""Clusters and sources are set up on pages: checked as the file is, with a trace of who changed what."""

from __future__ import annotations

import msgspec
from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction

from connectors.registry import FACTORIES
from triage.configuration import Configuration
from triage.layers import PageCluster, PageSource, config_path, load
from triage.models import Cluster, ClusterCheck, ConfiguredCluster, ConfiguredSource, Discovery, EventKind
from triage.services.events import record_event
from triage.services.sources import SETTINGS, page_clusters, page_rules, project_folder


class SetupRefused(Exception):
    """What was typed is not taken; by field, each a list of lines. `stale` when somebody else changed it meanwhile."""

    def __init__(self, errors: dict[str, list[str]], *, stale: bool = False) -> None:
        super().__init__("; ".join(line for lines in errors.values() for line in lines))
        self.errors, self.stale = errors, stale


@transaction.atomic
def save_cluster(name: str, settings: dict[str, str], actor: AbstractBaseUser, *, new: bool) -> ConfiguredCluster:
    """Adds a cluster or changes its settings. Raises SetupRefused."""
    name, kept = name.strip(), {key: settings.get(key, "").strip() for key in SETTINGS}
    row = ConfiguredCluster.objects.select_for_update().filter(name=name).first()
    if new and row is not None:
        raise SetupRefused({"name": [f"{name} is set up already"]})
    errors = _errors_of(name, PageCluster({key: value for key, value in kept.items() if value}))
    if errors:
        raise SetupRefused(errors)
    row = row or ConfiguredCluster(name=name)
    before = {key: getattr(row, key) for key in SETTINGS} if row.pk else {}
    for key, value in kept.items():
        setattr(row, key, value)
    row.changed_by = actor  # type: ignore[assignment]
    row.save()
    if before != kept:
        record_event(EventKind.CLUSTER_CONFIGURED, cluster=_known(name), actor=actor, before=before, after=kept)
    return row


def _errors_of(name: str, changed: PageCluster) -> dict[str, list[str]]:
    """What is wrong with a cluster's settings, by field."""
    pages = page_clusters()
    sources = pages[name].sources if name in pages else {}
    pages[name] = msgspec.structs.replace(changed, sources=sources)
    errors: dict[str, list[str]] = {}
    for words in _about(_loaded(pages), f"[clusters.{name}]: "):
        key = words.partition(":")[0]
        if key in SETTINGS:
            errors.setdefault(key, []).append(words.removeprefix(f"{key}: "))
        elif words.startswith("a cluster's name"):
            errors.setdefault("name", []).append(words)
    return errors


@transaction.atomic
def save_source(
    cluster: str, name: str, kind: str, text: str, actor: AbstractBaseUser, *, version: int = 0
) -> ConfiguredSource:
    """Adds a source (`version` 0), or changes the one that was read as `version`. Raises SetupRefused."""
    name, text = name.strip(), text.replace("\r\n", "\n").strip()
    text = f"{text}\n" if text else ""
    row = ConfiguredSource.objects.select_for_update(of=("self",)).filter(cluster__name=cluster, name=name).first()
    _refuse_stale(row, version)
    if kind not in FACTORIES:
        raise SetupRefused({"kind": [f"must be one of {', '.join(sorted(FACTORIES))}"]})
    if named_in_file(cluster, name):
        raise SetupRefused({"name": [f"{name} is set up in {_file()}: change it there, or choose another name"]})
    pages = page_clusters()
    page = pages.get(cluster, PageCluster())
    pages[cluster] = msgspec.structs.replace(page, sources={**page.sources, name: PageSource(kind, text)})
    errors = list(_about(_loaded(pages), f"[clusters.{cluster}.sources.{name}]: "))
    if errors:
        of_name = [words for words in errors if words.startswith("a source's name")]
        raise SetupRefused({"name": of_name} if of_name else {"text": errors})
    parent, _ = ConfiguredCluster.objects.get_or_create(name=cluster, defaults={"changed_by": actor})
    before = {"kind": row.kind, "text": row.text} if row is not None else {}
    row = row or ConfiguredSource(cluster=parent, name=name, version=0)
    row.kind, row.text, row.version = kind, text, row.version + 1
    row.changed_by = actor  # type: ignore[assignment]
    row.save()
    record_event(
        EventKind.SOURCE_CONFIGURED, cluster=_known(cluster), actor=actor, source=name, before=before,
        after={"kind": kind, "text": text},
    )  # fmt: skip
    return row


def _refuse_stale(row: ConfiguredSource | None, version: int) -> None:
    if version and row is None:
        raise SetupRefused({"text": ["it was removed meanwhile: save it under a name of its own"]}, stale=True)
    if row is not None and row.version != version:
        if not version:
            raise SetupRefused({"name": [f"{row.name} is set up already"]})
        who = row.changed_by.get_full_name() or row.changed_by.get_username()
        words = f"{who} changed it meanwhile; below is what you typed. Look at theirs, then save again"
        raise SetupRefused({"text": [words]}, stale=True)


@transaction.atomic
def remove_source(cluster: str, name: str, actor: AbstractBaseUser) -> bool:
    """Removes a source that was set up on a page. What it collected stays. False when it isn't there."""
    row = ConfiguredSource.objects.select_for_update(of=("self",)).filter(cluster__name=cluster, name=name).first()
    if row is None:
        return False
    before = {"kind": row.kind, "text": row.text}
    row.delete()
    record_event(EventKind.SOURCE_REMOVED, cluster=_known(cluster), actor=actor, source=name, before=before)
    _forget(cluster, [name])
    return True


@transaction.atomic
def remove_cluster(name: str, actor: AbstractBaseUser) -> bool:
    """Removes what was set up on pages of a cluster. Its attempts stay. False when there is nothing."""
    row = ConfiguredCluster.objects.select_for_update().filter(name=name).first()
    if row is None:
        return False
    before = {source.name: {"kind": source.kind, "text": source.text} for source in row.sources.all()}
    row.delete()
    record_event(EventKind.CLUSTER_REMOVED, cluster=_known(name), actor=actor, before=before)
    ClusterCheck.objects.filter(cluster=name).delete()
    _forget(name, list(before))
    return True


def _forget(cluster: str, sources: list[str]) -> None:
    """A source of the same name that is added later is another one: its search begins anew."""
    Discovery.objects.filter(connector__in=[f"{cluster}/{name}" for name in sources]).delete()


def named_in_file(cluster: str, source: str) -> bool:
    """Whether the file has this source, which then is the file's alone."""
    found = load(config_path(project_folder()), {})
    table = found.clusters.get(cluster)
    names = {one.name for one in table.sources} if table is not None else set()
    return source in names or any(f"[clusters.{cluster}.sources.{source}]" in error for error in found.errors)


def _file() -> str:
    return str(config_path(project_folder()) or "the environment")


def _loaded(pages: dict[str, PageCluster]) -> Configuration:
    return load(config_path(project_folder()), pages=pages, rules=page_rules())


def _about(found: Configuration, place: str) -> list[str]:
    """The errors of one table, without its name."""
    return [error.partition(place)[2] for error in found.errors if place in error]


def _known(name: str) -> Cluster:
    return Cluster.objects.get_or_create(name=name)[0]
