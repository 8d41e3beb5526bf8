"""How often people confirmed a rule is read from an index alone. Made while the service is up."""

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("triage", "0025_counted_in_indexes")]
    operations = [
        AddIndexConcurrently(
            model_name="verdict",
            index=models.Index(
                condition=models.Q(("ended_at__isnull", True)), fields=["rule", "kind"], name="verdict_standing"
            ),
        ),
    ]
