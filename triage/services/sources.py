"""The connectors of this installation: received bundles, watched folders, and the sources of its clusters."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from django.conf import settings

from connectors.base import ConfigError, Connector
from connectors.reach import reach_of
from connectors.registry import FACTORIES, Registry
from triage.access.sight import all_seeing
from triage.blobs import BlobStore
from triage.configuration import ClusterConfig, Configuration, SourceConfig
from triage.layers import PageCluster, PageRules, PageSource, config_path, load
from triage.models import ConfiguredCluster, ConfiguredSource
from triage.services import observations, spool
from triage.services.masking import mask_piece
from triage.services.sightings import DatabaseSightings

FILES = "files"
SETTINGS = ("time_zone", "recollect_after", "live")
"""Of a cluster, as they are called in the file."""
PageRows = tuple[tuple[tuple[str, ...], ...], tuple[tuple[str, ...], ...]]
"""What the database has of clusters and sources; a change of it is a change of the configuration."""


def configuration() -> Configuration:
    """The clusters that are configured, as pages, file and environment say now."""
    path = config_path(project_folder())
    return _configuration(path, _stamp(path), _rows())


def project_folder() -> Path:
    """Where faultline.toml is looked for first."""
    return Path(settings.BASE_DIR)


def page_rules() -> PageRules:
    """What a page may name on the machines that workers run on."""
    hosts = reach_of(settings.FAULTLINE_PAGE_HOSTS, "FAULTLINE_PAGE_HOSTS")
    return PageRules(tuple(settings.FAULTLINE_PAGE_FOLDERS), hosts)


def page_clusters(rows: PageRows | None = None) -> dict[str, PageCluster]:
    """What is set up on pages."""
    clusters, sources = _rows() if rows is None else rows
    found = {
        name: PageCluster({key: value for key, value in zip(SETTINGS, values, strict=True) if value})
        for name, *values in clusters
    }
    for cluster, name, kind, text in sources:
        found[cluster].sources[name] = PageSource(kind, text)
    return found


def registry() -> Registry:
    """The connectors that are set up. A source with an error in its configuration is not among them.

    Raises ConfigError.
    """
    return _registry(configuration())


def blob_store() -> BlobStore:
    """Where raw streams are kept. What is read has its secrets hidden once more: the list of them grows."""
    return BlobStore(settings.FAULTLINE_DATA_DIR / "blobs", hide=mask_piece)


def find_source(key: str) -> tuple[ClusterConfig, SourceConfig]:
    """A source by its name among all connectors, `cluster/source`. Raises ConfigError."""
    cluster_name, _, name = key.partition("/")
    cluster = configuration().clusters.get(cluster_name)
    source = cluster.source(name) if cluster is not None else None
    if cluster is None or source is None:
        raise ConfigError(f"source {key!r} is not configured")
    return cluster, source


def make_connector(source: SourceConfig) -> Connector:
    """A source's connector, with what it may need of the database. Raises ConfigError."""
    connector = source.connector()
    if hasattr(connector, "sightings"):
        connector.sightings = DatabaseSightings(source.cluster)
    return connector


def _stamp(path: Path | None) -> tuple[int, int] | None:
    """Changes when the file does, so that a worker need not be restarted for it."""
    try:
        facts = path.stat() if path is not None else None
    except OSError:
        return None
    return (facts.st_mtime_ns, facts.st_size) if facts is not None else None


@all_seeing
def _rows() -> PageRows:
    clusters = ConfiguredCluster.objects.order_by("name").values_list("name", *SETTINGS)
    sources = ConfiguredSource.objects.order_by("cluster__name", "name").values_list(
        "cluster__name", "name", "kind", "text"
    )
    known = tuple(clusters)
    return known, tuple(sources) if known else ()


@lru_cache(maxsize=8)
def _configuration(path: Path | None, stamp: tuple[int, int] | None, rows: PageRows) -> Configuration:
    return load(path, pages=page_clusters(rows), rules=page_rules())


_registries: list[tuple[Configuration, Registry]] = []


def _registry(found: Configuration) -> Registry:
    if not _registries or _registries[0][0] is not found:
        watched = {f"watch{number}": path for number, path in enumerate(settings.FAULTLINE_WATCH)}
        roots = {spool.ROOT: spool.folder(), observations.ROOT: observations.folder(), **watched}
        connectors = {FILES: FACTORIES[FILES]({"name": FILES, "roots": roots, "watch": list(watched)})}
        for cluster in found.clusters.values():
            connectors |= {source.key: make_connector(source) for source in cluster.sources}
        _registries[:] = [(found, Registry(connectors))]
    return _registries[0][1]


def forget_configuration() -> None:
    """Reads everything anew the next time."""
    _configuration.cache_clear()
    _registries.clear()


registry.cache_clear = forget_configuration  # type: ignore[attr-defined]
