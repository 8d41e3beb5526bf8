"""Entry point of WSGI servers."""

from django.core.wsgi import get_wsgi_application

from triage import env, tracing

env.load_settings("web server")
tracing.begin("faultline-web")
application = get_wsgi_application()
