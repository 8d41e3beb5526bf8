"""Runs a whole Faultline on one machine: servers, migrations, web server, worker and beat, as child processes.

Nothing here imports Django or Celery: the supervisor must work, and say what is wrong, before their settings can
be read.
"""
