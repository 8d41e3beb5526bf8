"""The database writes the audit itself, and refuses to change it: what people do as the events of the record tell it, and
every change of accounts, roles, teams, tokens, views and what is configured.
"""

from django.db import migrations

AUDITED = {
    # table: (column that names a row, columns that are never written down, columns whose changes tell nothing)
    "auth_user": ("username", ["password"], ["last_login"]),
    "auth_group": ("name", [], []),
    "auth_user_groups": ("", [], []),
    "socialaccount_socialaccount": ("uid", ["extra_data"], ["last_login"]),
    "triage_person": ("role", [], []),
    "triage_teamreach": ("queue", [], []),
    "triage_apitoken": ("name", ["digest"], ["last_used_at"]),
    "triage_savedview": ("name", [], ["changed_at"]),
    "triage_sharelink": ("note", ["nonce"], []),
    "triage_channel": ("name", ["config"], ["changed_at"]),
    "triage_route": ("name", [], ["changed_at"]),
    "triage_cluster": ("name", [], []),
    "triage_configuredcluster": ("name", [], ["changed_at"]),
    "triage_configuredsource": ("name", ["text"], ["changed_at"]),
}

FUNCTIONS = """
CREATE FUNCTION faultline_write_audit(what text, kind text, key text, name text, changes jsonb, who_default bigint)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    who jsonb := nullif(current_setting('faultline.who', true), '')::jsonb;
    number bigint := coalesce(who_default, (who->>'user')::bigint);
    found_address text := CASE WHEN what = 'share.opened' THEN nullif(changes->>'address', '') END;
BEGIN
    INSERT INTO triage_auditentry
        (at, actor, actor_name, token, address, action, subject, subject_id, name, changes)
    VALUES (
        now(), number,
        coalesce((SELECT username FROM auth_user WHERE id = number), who->>'name', ''),
        (who->>'token')::bigint, coalesce(who->>'address', found_address)::inet, what, kind, left(key, 300),
        left(coalesce(name, ''), 300), changes
    );
END $$;

CREATE FUNCTION faultline_audit_row() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    naming text := TG_ARGV[0];
    hidden text[] := TG_ARGV[1]::text[];
    quiet text[] := TG_ARGV[2]::text[];
    before jsonb := CASE WHEN TG_OP = 'INSERT' THEN '{}'::jsonb ELSE to_jsonb(OLD) - quiet END;
    after jsonb := CASE WHEN TG_OP = 'DELETE' THEN '{}'::jsonb ELSE to_jsonb(NEW) - quiet END;
    found jsonb;
    one jsonb := CASE WHEN TG_OP = 'DELETE' THEN before ELSE after END;
BEGIN
    SELECT jsonb_object_agg(key, CASE WHEN key = ANY (hidden) THEN '["...", "..."]'::jsonb
                                 ELSE jsonb_build_array(before->key, after->key) END)
    INTO found FROM (SELECT jsonb_object_keys(before || after) AS key) keys
    WHERE before->key IS DISTINCT FROM after->key;
    IF found IS NULL THEN
        RETURN NULL;
    END IF;
    PERFORM faultline_write_audit(
        CASE TG_OP WHEN 'INSERT' THEN 'created' WHEN 'DELETE' THEN 'deleted' ELSE 'changed' END,
        regexp_replace(TG_TABLE_NAME, '^(auth|triage|socialaccount)_', ''), one->>'id', one->>naming, found, NULL
    );
    RETURN NULL;
END $$;

CREATE FUNCTION faultline_audit_event() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM faultline_write_audit(
        NEW.kind,
        CASE WHEN NEW.attempt_id IS NOT NULL THEN 'attempt' WHEN NEW.incident_id IS NOT NULL THEN 'incident'
             WHEN NEW.node <> '' THEN 'node' ELSE 'event' END,
        coalesce(NEW.attempt_id::text, NEW.incident_id::text, nullif(NEW.node, ''), NEW.id::text), '', NEW.payload,
        NEW.actor_id
    );
    RETURN NULL;
END $$;

CREATE TRIGGER people_are_audited AFTER INSERT ON triage_timelineevent
    FOR EACH ROW WHEN (NEW.actor_id IS NOT NULL OR NEW.kind = 'share.opened') EXECUTE FUNCTION faultline_audit_event();

CREATE FUNCTION faultline_refuse_rewriting() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the audit is never rewritten' USING ERRCODE = 'integrity_constraint_violation';
END $$;
CREATE TRIGGER audit_is_never_rewritten BEFORE UPDATE OR DELETE ON triage_auditentry
    FOR EACH ROW EXECUTE FUNCTION faultline_refuse_rewriting();
CREATE TRIGGER audit_is_never_emptied BEFORE TRUNCATE ON triage_auditentry
    FOR EACH STATEMENT EXECUTE FUNCTION faultline_refuse_rewriting();
"""
DROP = """
DROP TRIGGER audit_is_never_emptied ON triage_auditentry;
DROP TRIGGER audit_is_never_rewritten ON triage_auditentry;
DROP TRIGGER people_are_audited ON triage_timelineevent;
DROP FUNCTION faultline_refuse_rewriting();
DROP FUNCTION faultline_audit_event();
DROP FUNCTION faultline_audit_row();
DROP FUNCTION faultline_write_audit(text, text, text, text, jsonb, bigint);
"""


def watch(table: str, naming: str, hidden: list[str], quiet: list[str]) -> migrations.RunSQL:
    words = f"'{naming}', '{{{','.join(hidden)}}}', '{{{','.join(quiet)}}}'"
    return migrations.RunSQL(
        f"CREATE TRIGGER row_is_audited AFTER INSERT OR UPDATE OR DELETE ON {table} "
        f"FOR EACH ROW EXECUTE FUNCTION faultline_audit_row({words})",
        f"DROP TRIGGER row_is_audited ON {table}",
    )


class Migration(migrations.Migration):
    dependencies = [
        ("triage", "0019_audit"),
        ("auth", "0012_alter_user_first_name_max_length"),
        ("socialaccount", "0006_alter_socialaccount_extra_data"),
    ]
    operations = [
        migrations.RunSQL(FUNCTIONS, DROP),
        *(watch(table, *facts) for table, facts in AUDITED.items()),
    ]
