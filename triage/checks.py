"""What `manage.py check`, and the start of every process, say of the configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.apps import apps
from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning, register

from triage.access.managers import Seen
from triage.layers import config_path, load


@register()
def clusters_are_configured_well(app_configs: Any, **options: Any) -> list[CheckMessage]:
    """A warning for each error in faultline.toml: the sources that have none are used all the same."""
    found = load(config_path(Path(settings.BASE_DIR)))
    return [Warning(error, id="faultline.W001") for error in found.errors]


PERSONAL = ("apitoken", "auditentry", "defaultview", "followed", "idempotentcall", "person", "savedview", "teamreach")
"""Models whose rows are looked up by the person they belong to, or read by admins alone."""


@register()
def every_model_is_seen_through_its_manager(app_configs: Any, **options: Any) -> list[CheckMessage]:
    """An error for each model whose rows would be shown to everybody."""
    return [
        Error(
            f"{model.__name__}: say `objects = Seen()` and its rule in triage/access/visible.py, or name it PERSONAL",
            obj=model,
            id="faultline.E001",
        )
        for model in apps.get_app_config("triage").get_models()
        if not isinstance(model._default_manager, Seen) and model._meta.model_name not in PERSONAL
    ]
