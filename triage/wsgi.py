"""Entry point of WSGI servers."""

import os

from django.core.wsgi import get_wsgi_application

from triage import tracing

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "triage.settings")
tracing.begin("faultline-web")
application = get_wsgi_application()
