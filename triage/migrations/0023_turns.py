"""Whose turn it is."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("triage", "0022_names_are_forgotten")]
    operations = [
        migrations.AddField(
            model_name="attempt",
            name="triage_rank",
            field=models.FloatField(
                blank=True,
                help_text="What waits is taken by this, the greatest first; empty while it is not due.",
                null=True,
            ),
        ),
        migrations.AlterField(
            model_name="attempt",
            name="triage_queued_at",
            field=models.DateTimeField(
                blank=True, help_text="Since when it waits; of what nobody asked for: until when.", null=True
            ),
        ),
    ]
