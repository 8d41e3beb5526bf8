"""How gunicorn writes its own lines: like all others. `gunicorn -c python:triage.web_server triage.wsgi:application`.

Requests are told of by `triage.middleware.LogMiddleware`; gunicorn's own list of them would hold the words of share
links.
"""

import logging

from triage import env, logs

env.load_settings("web server")  # once, before there are workers that would each say it
logging.captureWarnings(True)
logconfig_dict = logs.config()
accesslog = None
