"""manage.py watch_placements: follows the pods of Kueue clusters, so that even the shortest is seen where it ran."""

from __future__ import annotations

import logging
import signal
import threading
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import close_old_connections

from connectors.base import ConnectorError
from triage.configuration import SourceConfig
from triage.services.sightings import DatabaseSightings
from triage.services.sources import configuration, make_connector

logger = logging.getLogger(__name__)
AGAIN_SECONDS = 10.0


class Command(BaseCommand):
    help = (
        "Watches the pods of every Kueue source (or of one CLUSTER) and keeps where they ran and how they ended, until "
        "it is stopped. Discovery does the same at every search; this makes it instant. One process is enough."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("cluster", nargs="?", metavar="CLUSTER")

    def handle(self, *args: Any, cluster: str | None, **options: Any) -> None:
        clusters = [one for one in configuration().clusters.values() if cluster in (None, one.name)]
        sources = [source for one in clusters for source in one.sources if source.kind == "kueue"]
        if not sources:
            raise CommandError("no source of kind kueue is configured" + (f" for {cluster}" if cluster else ""))
        stop = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop.set())
        threads = [threading.Thread(target=_watch, args=(source, stop), name=source.key) for source in sources]
        for thread in threads:
            thread.start()
        self.stdout.write(f"watching {', '.join(source.key for source in sources)}")
        for thread in threads:
            thread.join()


def _watch(source: SourceConfig, stop: threading.Event) -> None:
    connector: Any = make_connector(source)
    while not stop.is_set():
        try:
            connector.watch_placements(DatabaseSightings(source.cluster), stop)
        except ConnectorError as error:
            if not stop.is_set():
                logger.warning("%s: %s", source.key, error)
        except Exception:
            logger.exception("%s: the watch failed", source.key)
        finally:
            close_old_connections()
        stop.wait(AGAIN_SECONDS)
