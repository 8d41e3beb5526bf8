"""The nodes of attempts from before. A batch is a transaction: what is filled already is left alone, so that it goes on
where it was interrupted, and who writes an attempt meanwhile waits for one batch at most.
"""

from typing import Any

from django.db import migrations, transaction

BATCH = 1000
HOLD = "SELECT id FROM triage_attempt WHERE id > %s AND id <= %s ORDER BY id FOR SHARE"
# a statement of its own: it sees what was written before the rows were held, and the trigger's rows of that
FILL = """
INSERT INTO triage_attemptnode
    (attempt_id, node, cluster_id, queue, workload_id, sort_at, began_on, ended_on, ran, failed, blamed)
SELECT found.* FROM triage_attempt AS one, faultline_nodes_of(one) AS found
WHERE one.id > %s AND one.id <= %s
      AND NOT EXISTS (SELECT FROM triage_attemptnode AS kept WHERE kept.attempt_id = one.id)
"""


def fill(apps: Any, schema_editor: Any) -> None:
    connection = schema_editor.connection
    with connection.cursor() as cursor:
        cursor.execute("SELECT coalesce(min(id), 0), coalesce(max(id), 0) FROM triage_attempt")
        first, last = cursor.fetchone()
        for before in range(first - 1, last, BATCH):
            with transaction.atomic(using=connection.alias):
                cursor.execute(HOLD, [before, before + BATCH])
                cursor.execute(FILL, [before, before + BATCH])


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("triage", "0027_attempt_nodes")]
    operations = [migrations.RunPython(fill, migrations.RunPython.noop, elidable=True)]
