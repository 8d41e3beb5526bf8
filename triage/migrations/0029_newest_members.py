"""The newest attempts of an incident are picked from an index. Made while the service is up."""

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("triage", "0028_attempt_nodes_of_earlier")]
    operations = [
        AddIndexConcurrently(
            model_name="membership", index=models.Index(fields=["incident", "-attempt"], name="newest_member")
        ),
    ]
