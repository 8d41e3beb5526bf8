"""What `manage.py check`, and the start of every process, say of the configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Warning, register

from triage.configuration import config_path, load


@register()
def clusters_are_configured_well(app_configs: Any, **options: Any) -> list[CheckMessage]:
    """A warning for each error in faultline.toml: the sources that have none are used all the same."""
    found = load(config_path(Path(settings.BASE_DIR)))
    return [Warning(error, id="faultline.W001") for error in found.errors]
