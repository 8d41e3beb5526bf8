"""The database itself refuses to change what a diagnosis says and what the timeline tells."""

from django.db import migrations

CREATE = """
CREATE FUNCTION faultline_refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% rows are never edited', TG_TABLE_NAME USING ERRCODE = 'integrity_constraint_violation';
END $$;

CREATE TRIGGER diagnosis_is_never_edited
    BEFORE UPDATE OF attempt_id, contract, outcome, domain, sub_domain, title, rule, fingerprint, ruleset,
    engine_version,
        evidence_hash, created_at
    ON triage_diagnosis FOR EACH ROW EXECUTE FUNCTION faultline_refuse_change();

CREATE TRIGGER timeline_is_never_edited
    BEFORE UPDATE ON triage_timelineevent FOR EACH ROW EXECUTE FUNCTION faultline_refuse_change();
"""

DROP = """
DROP TRIGGER timeline_is_never_edited ON triage_timelineevent;
DROP TRIGGER diagnosis_is_never_edited ON triage_diagnosis;
DROP FUNCTION faultline_refuse_change();
"""


class Migration(migrations.Migration):
    dependencies = [("triage", "0001_initial")]
    operations = [migrations.RunSQL(CREATE, DROP)]
