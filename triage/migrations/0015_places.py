"""The database itself keeps, for each incident, where the attempts ran that ever were in it; and the roles of who was
there before: everybody could do everything.
"""

from django.db import migrations

CREATE = """
ALTER TABLE triage_incident ALTER COLUMN places SET DEFAULT '{}';

CREATE FUNCTION faultline_add_place(attempt bigint, incidents bigint[]) RETURNS void LANGUAGE sql AS $$
    UPDATE triage_incident incident SET places = array_append(incident.places, found.place)
    FROM (SELECT cluster_id || '/' || queue AS place FROM triage_attempt WHERE id = attempt) found
    WHERE incident.id = ANY (incidents) AND NOT found.place = ANY (incident.places)
$$;

CREATE FUNCTION faultline_member_has_a_place() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM faultline_add_place(NEW.attempt_id, ARRAY[NEW.incident_id, NEW.home_id]);
    RETURN NULL;
END $$;

CREATE TRIGGER member_has_a_place AFTER INSERT OR UPDATE OF attempt_id, incident_id, home_id ON triage_membership
    FOR EACH ROW EXECUTE FUNCTION faultline_member_has_a_place();

CREATE FUNCTION faultline_place_has_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM faultline_add_place(NEW.id, ARRAY[incident_id, home_id]) FROM triage_membership WHERE attempt_id = NEW.id;
    RETURN NULL;
END $$;

CREATE TRIGGER place_has_changed AFTER UPDATE OF cluster_id, queue ON triage_attempt
    FOR EACH ROW WHEN (OLD.cluster_id IS DISTINCT FROM NEW.cluster_id OR OLD.queue IS DISTINCT FROM NEW.queue)
    EXECUTE FUNCTION faultline_place_has_changed();

UPDATE triage_incident incident SET places = found.places FROM (
    SELECT shown.id, array_agg(DISTINCT attempt.cluster_id || '/' || attempt.queue) AS places
    FROM triage_membership member
    JOIN triage_attempt attempt ON attempt.id = member.attempt_id
    CROSS JOIN LATERAL (VALUES (member.incident_id), (member.home_id)) AS shown (id)
    GROUP BY shown.id
) found WHERE found.id = incident.id;

INSERT INTO triage_person (user_id, role)
SELECT id, CASE WHEN is_superuser THEN 'admin' ELSE 'responder' END FROM auth_user ON CONFLICT DO NOTHING;
"""

DROP = """
ALTER TABLE triage_incident ALTER COLUMN places DROP DEFAULT;
DROP TRIGGER place_has_changed ON triage_attempt;
DROP TRIGGER member_has_a_place ON triage_membership;
DROP FUNCTION faultline_place_has_changed();
DROP FUNCTION faultline_member_has_a_place();
DROP FUNCTION faultline_add_place(bigint, bigint[]);
"""


class Migration(migrations.Migration):
    dependencies = [("triage", "0014_access"), ("auth", "0012_alter_user_first_name_max_length")]
    operations = [migrations.RunSQL(CREATE, DROP)]
