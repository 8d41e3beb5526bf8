"""What ran on a node, and what it is blamed for, is kept a row each by the database itself: from here on for whatever is
written, by the next migration for what was there before.
"""

import django.db.models.deletion
from django.db import migrations, models

CREATE = """
CREATE FUNCTION faultline_nodes_of(one triage_attempt) RETURNS TABLE (
    attempt_id bigint, node varchar, cluster_id bigint, queue varchar, workload_id bigint, sort_at timestamptz,
    began_on date, ended_on date, ran boolean, failed boolean, blamed boolean
) LANGUAGE sql STABLE AS $$
    SELECT one.id, named.node, one.cluster_id, one.queue, one.workload_id, one.sort_at,
           (coalesce(one.started_at, one.sort_at) AT TIME ZONE 'UTC')::date, (one.sort_at AT TIME ZONE 'UTC')::date,
           bool_or(named.ran), one.outcome NOT IN ('succeeded', ''),
           one.outcome <> 'succeeded' AND bool_or(named.blamed)
    FROM (
        SELECT unnest(one.nodes) AS node, true AS ran, false AS blamed
        UNION ALL SELECT unnest(one.blamed_nodes), false, true
    ) named
    WHERE named.node IS NOT NULL GROUP BY named.node
$$;

CREATE FUNCTION faultline_keep_nodes() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP <> 'INSERT' THEN
        DELETE FROM triage_attemptnode WHERE attempt_id = OLD.id;
    END IF;
    IF TG_OP <> 'DELETE' THEN
        INSERT INTO triage_attemptnode
            (attempt_id, node, cluster_id, queue, workload_id, sort_at, began_on, ended_on, ran, failed, blamed)
        SELECT * FROM faultline_nodes_of(NEW);
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER nodes_are_kept AFTER INSERT OR DELETE ON triage_attempt
    FOR EACH ROW EXECUTE FUNCTION faultline_keep_nodes();

CREATE TRIGGER nodes_are_kept_anew AFTER UPDATE ON triage_attempt
    FOR EACH ROW WHEN (
        (OLD.cluster_id, OLD.queue, OLD.workload_id, OLD.nodes, OLD.blamed_nodes, OLD.started_at, OLD.sort_at,
         OLD.outcome)
        IS DISTINCT FROM
        (NEW.cluster_id, NEW.queue, NEW.workload_id, NEW.nodes, NEW.blamed_nodes, NEW.started_at, NEW.sort_at,
         NEW.outcome)
    ) EXECUTE FUNCTION faultline_keep_nodes();
"""
DROP = """
DROP TRIGGER nodes_are_kept_anew ON triage_attempt;
DROP TRIGGER nodes_are_kept ON triage_attempt;
DROP FUNCTION faultline_keep_nodes();
DROP FUNCTION faultline_nodes_of(triage_attempt);
"""


class Migration(migrations.Migration):
    dependencies = [
        ("triage", "0026_standing_verdicts"),
    ]

    operations = [
        migrations.CreateModel(
            name="AttemptNode",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("node", models.CharField(max_length=253)),
                ("queue", models.CharField(max_length=253)),
                ("sort_at", models.DateTimeField(help_text="The attempt's.")),
                (
                    "began_on",
                    models.DateField(help_text="Day (UTC) of its start; where that is unknown, of sort_at."),
                ),
                ("ended_on", models.DateField(help_text="Day (UTC) of sort_at.")),
                ("ran", models.BooleanField(help_text="It is of the allocation.")),
                ("failed", models.BooleanField(help_text="The attempt has a diagnosis, and didn't succeed.")),
                ("blamed", models.BooleanField(help_text="The node is to blame for its failure.")),
                (
                    "attempt",
                    models.ForeignKey(
                        db_constraint=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="on_nodes",
                        to="triage.attempt",
                    ),
                ),
                (
                    "cluster",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="+",
                        to="triage.cluster",
                    ),
                ),
                (
                    "workload",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="+",
                        to="triage.workload",
                    ),
                ),
            ],
            options={
                "indexes": [
                    models.Index(
                        condition=models.Q(("ran", True)),
                        fields=["node", "cluster", "-sort_at", "-attempt"],
                        include=("queue", "workload", "began_on", "ended_on", "failed", "blamed"),
                        name="ran_on_node",
                    ),
                    models.Index(
                        condition=models.Q(("blamed", True)),
                        fields=["node", "cluster", "-sort_at", "-attempt"],
                        include=("queue",),
                        name="blamed_node",
                    ),
                ],
            },
        ),
        migrations.RunSQL(CREATE, DROP),
    ]
