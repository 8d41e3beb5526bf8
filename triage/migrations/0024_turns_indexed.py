"""Indexes of what waits, made while the service is up."""

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("triage", "0023_turns")]
    operations = [
        AddIndexConcurrently(
            model_name="attempt",
            index=models.Index(
                condition=models.Q(("triage_rank__isnull", False), ("triage_state", "pending")),
                fields=["cluster", "triage_rank"],
                name="attempt_waiting",
            ),
        ),
        AddIndexConcurrently(
            model_name="attempt",
            index=models.Index(
                condition=models.Q(("triage_state__in", ["collecting", "diagnosing"])),
                fields=["cluster", "triage_state"],
                name="attempt_begun",
            ),
        ),
    ]
