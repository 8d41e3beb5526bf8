"""Entry point of ASGI servers."""

from django.core.asgi import get_asgi_application

from triage import env

env.load_settings("web server")
application = get_asgi_application()
