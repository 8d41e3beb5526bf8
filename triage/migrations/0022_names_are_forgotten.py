"""A diagnosis is never edited, but for names of people that are no longer kept: only within a transaction that says so."""

from django.db import migrations

FORGETS = """
CREATE OR REPLACE FUNCTION faultline_refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_TABLE_NAME = 'triage_diagnosis' AND current_setting('faultline.forgetting', true) = 'on'
        AND (to_jsonb(OLD) - 'contract' - 'title') = (to_jsonb(NEW) - 'contract' - 'title') THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION '% rows are never edited', TG_TABLE_NAME USING ERRCODE = 'integrity_constraint_violation';
END $$;
"""
NEVER = """
CREATE OR REPLACE FUNCTION faultline_refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% rows are never edited', TG_TABLE_NAME USING ERRCODE = 'integrity_constraint_violation';
END $$;
"""


class Migration(migrations.Migration):
    dependencies = [("triage", "0021_followed")]
    operations = [migrations.RunSQL(FORGETS, NEVER)]
