"""What lists count of one user, one queue or one rule is read from an index alone. Made while the service is up."""

from django.contrib.postgres.operations import AddIndexConcurrently, RemoveIndexConcurrently
from django.db import migrations, models

FAILURE = models.Q(("outcome", "succeeded"), _negated=True)
COUNTED = ("domain", "outcome", "triage_state", "verdict_status", "cluster", "lost_gpu_hours", "blames")


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("triage", "0024_turns_indexed")]
    operations = [
        AddIndexConcurrently(
            model_name="attempt",
            index=models.Index(fields=["user", "-sort_at", "-id"], include=("outcome",), name="attempt_of_user"),
        ),
        AddIndexConcurrently(
            model_name="attempt",
            index=models.Index(fields=["queue", "-sort_at", "-id"], include=("outcome",), name="attempt_of_queue"),
        ),
        AddIndexConcurrently(
            model_name="attempt",
            index=models.Index(
                condition=FAILURE, fields=["user", "-sort_at", "-id"], include=COUNTED, name="failure_of_user"
            ),
        ),
        AddIndexConcurrently(
            model_name="attempt",
            index=models.Index(
                condition=FAILURE,
                fields=["queue", "-sort_at", "-id"],
                include=(*COUNTED, "user"),
                name="failure_of_queue",
            ),
        ),
        AddIndexConcurrently(
            model_name="attempt",
            index=models.Index(
                condition=FAILURE,
                fields=["rule", "-sort_at", "-id"],
                include=(*COUNTED, "user"),
                name="failure_of_rule",
                opclasses=["varchar_pattern_ops", "timestamptz_ops", "int8_ops"],
            ),
        ),
        RemoveIndexConcurrently(model_name="attempt", name="attempt_by_user"),
        RemoveIndexConcurrently(model_name="attempt", name="attempt_by_queue"),
    ]
