"""Settings, from the environment. What must be set in production is refused when it is missing."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from kombu import Queue

from triage import env, logs
from triage.schedule import Every

BASE_DIR = Path(__file__).resolve().parent.parent
STATE_DIR = Path(os.environ.get("FAULTLINE_STATE_DIR") or BASE_DIR / ".faultline").resolve()
FAULTLINE_DATA_DIR = Path(os.environ.get("FAULTLINE_DATA_DIR") or STATE_DIR / "data").resolve()
"""Holds the blob store and the spool of received bundles; shared by web servers and workers."""

DEBUG = env.flag("DEBUG")
SECRET_KEY = os.environ.get("SECRET_KEY") or env.secret_key(STATE_DIR / "secret-key")
ALLOWED_HOSTS = env.items("ALLOWED_HOSTS", "localhost,127.0.0.1,[::1]")
CSRF_TRUSTED_ORIGINS = env.items("CSRF_TRUSTED_ORIGINS")

# --- what runs --------------------------------------------------------------------------------------------------------
INSTALLED_APPS = [
    "triage.admin_app.FaultlineAdminConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.postgres",
    "django.contrib.staticfiles",
    "django.contrib.humanize",
    "allauth",
    "allauth.account",
    "allauth.socialaccount",
    "allauth.socialaccount.providers.openid_connect",
    "axes",
    "django_htmx",
    "django_prometheus",
    "rest_framework",
    "drf_spectacular",
    "triage",
]
MIDDLEWARE = [
    "triage.middleware.LogMiddleware",
    "django_prometheus.middleware.PrometheusBeforeMiddleware",
    "triage.access.middleware.SightMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "triage.middleware.SafeAnswerMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "triage.web.zones.ZoneMiddleware",
    "triage.access.rights.RightsMiddleware",
    "triage.access.audit.AuditMiddleware",
    "allauth.account.middleware.AccountMiddleware",
    "axes.middleware.AxesMiddleware",
    "triage.middleware.UnavailableMiddleware",
    "django_prometheus.middleware.PrometheusAfterMiddleware",
]
ROOT_URLCONF = "triage.urls"
WSGI_APPLICATION = "triage.wsgi.application"
ASGI_APPLICATION = "triage.asgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "triage.web.context.page",
            ],
        },
    },
]

# --- servers ----------------------------------------------------------------------------------------------------------
DATABASE_URL = os.environ.get("DATABASE_URL") or "postgresql://faultline:faultline@127.0.0.1:5432/faultline"
DATABASES = {"default": env.database(DATABASE_URL)}
DATABASES["default"]["CONN_MAX_AGE"] = env.number("DATABASE_CONN_MAX_AGE", 60)
DATABASES["default"]["CONN_HEALTH_CHECKS"] = True
DATABASES["default"]["OPTIONS"] = {
    "connect_timeout": 5,
    # a server that is gone, or a firewall that has forgotten the connection, is noticed within half a minute
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
    **DATABASES["default"]["OPTIONS"],
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

REDIS_URL = env.broker(os.environ.get("REDIS_URL") or "redis://127.0.0.1:6379/0")

# --- workers: the database is the truth, a message is only a hint, so no results are kept -----------------------------
CELERY_BROKER_URL = REDIS_URL
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_DEFAULT_QUEUE = os.environ.get("FAULTLINE_QUEUE") or "faultline"
FAULTLINE_KNOCKS = f"{CELERY_TASK_DEFAULT_QUEUE}-work"
"""The queue of messages that say only that there is something to do: a few of them, however much it is."""
CELERY_TASK_QUEUES = [
    Queue(name) for name in (CELERY_TASK_DEFAULT_QUEUE, f"{CELERY_TASK_DEFAULT_QUEUE}-now", FAULTLINE_KNOCKS)
]
CELERY_TASK_ROUTES = {
    "triage.work": {"queue": FAULTLINE_KNOCKS},
    **{
        task: {"queue": f"{CELERY_TASK_DEFAULT_QUEUE}-now"}
        for task in ("triage.sweep", "triage.discover", "triage.discover_source", "triage.check_source")
    },
}
"""Workers take from all in turn, so what is short, or waited for, does not stand behind what is long."""
CELERY_TASK_ACKS_LATE = True
CELERY_TASK_REJECT_ON_WORKER_LOST = True
CELERY_TASK_TIME_LIMIT = env.number("FAULTLINE_TASK_TIME_LIMIT", 3600)
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_WORKER_CANCEL_LONG_RUNNING_TASKS_ON_CONNECTION_LOSS = False  # a lease keeps a redelivered copy away
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_CONNECTION_MAX_RETRIES = None
CELERY_BROKER_TRANSPORT_OPTIONS = {
    "visibility_timeout": 600,
    "socket_connect_timeout": 3,
    "socket_timeout": 10,
    "socket_keepalive": True,
    "socket_keepalive_options": env.keepalive(idle=10, interval=5, count=3),
    "retry_on_timeout": True,
    "health_check_interval": 10,
}
CELERY_TASK_PUBLISH_RETRY_POLICY = {"max_retries": 1, "interval_start": 0.1, "interval_step": 0.1, "interval_max": 0.2}
CELERY_TIMEZONE = "UTC"
CELERY_BEAT_SCHEDULE_FILENAME = str(STATE_DIR / "celerybeat-schedule")
FAULTLINE_BEAT_SECONDS = {
    "sweep": env.number("FAULTLINE_SWEEP_SECONDS", 15, least=1),
    "discover": env.number("FAULTLINE_DISCOVER_SECONDS", 30, least=1),
    "tell": env.number("FAULTLINE_TELL_SECONDS", 5, least=1),
    "prune_observations": 3600,
    "prune": 3600,
    "forget_deliveries": 3600,
}
CELERY_BEAT_SCHEDULE = {
    name.replace("_", "-"): {
        "task": f"triage.{name}",
        "schedule": Every(seconds),
        "options": {"expires": 6 * 3600},  # by the worker's clock, which may be wrong by hours
    }
    for name, seconds in FAULTLINE_BEAT_SECONDS.items()
}
"""Of what waited while no worker was there, one of each is done: `triage.tasks.periodic`."""
FAULTLINE_LEASE_SECONDS = env.number("FAULTLINE_LEASE_SECONDS", 45, least=1)
"""A worker that hasn't been heard of for so long is taken for dead and its attempt is picked up by another."""

FAULTLINE_TRIAGE_ORDER = env.one_of("FAULTLINE_TRIAGE_ORDER", "newest", ("newest", "oldest"))
"""Of what waits in one cluster: newest or oldest first, and in both the larger job before."""

# --- triage -----------------------------------------------------------------------------------------------------------
FAULTLINE_RULES = [Path(part) for part in env.items("FAULTLINE_RULES", separator=os.pathsep)]
"""Folders with a site's own rule packs."""
FAULTLINE_WATCH = [Path(part) for part in env.items("FAULTLINE_WATCH", separator=os.pathsep)]
"""Folders in which capture bundles appear; each becomes an attempt by itself."""
FAULTLINE_PAGE_FOLDERS = [
    Path(part) for part in env.items("FAULTLINE_PAGE_FOLDERS", "/run/secrets", separator=os.pathsep)
]
"""Folders in which the clusters' pages may name files: secrets, kubeconfigs, certificates, logs."""
FAULTLINE_PAGE_HOSTS = env.items("FAULTLINE_PAGE_HOSTS", "*")
"""Hosts at which the clusters' pages may name servers: names, .domains, addresses, networks; * for private and public
ones. The machine itself, link-local addresses and clouds' metadata are not among those: they are named one by one."""
FAULTLINE_MAX_UPLOAD_BYTES = env.number("FAULTLINE_MAX_UPLOAD_BYTES", 2 * 1024**3)

FAULTLINE_MAX_ATTEMPT_BYTES = env.number("FAULTLINE_MAX_ATTEMPT_BYTES", 8 * 1024**3)
"""What all observations of one attempt may hold together."""
FAULTLINE_QUIET_SECONDS = env.number("FAULTLINE_QUIET_SECONDS", 600)
"""An attempt made by the API that nobody asks to diagnose is diagnosed so long after its last observation."""
FAULTLINE_KEEP_OBSERVATIONS_HOURS = env.number("FAULTLINE_KEEP_OBSERVATIONS_HOURS", 24)
"""So long a diagnosed stream still takes parts; then only the blob store has it."""

FAULTLINE_FIGURES_SECONDS = env.number("FAULTLINE_FIGURES_SECONDS", 60)
"""So old may be what Insights, Nodes and Rules count over weeks of attempts, and a list that counts only its newest
attempts; 0: counted at each look."""
CACHES = {
    "default": {
        "BACKEND": "django.core.cache.backends.locmem.LocMemCache",
        "OPTIONS": {"MAX_ENTRIES": 5_000},  # each of a few kilobytes: every list that people look at within a minute
    }
}

# --- figures of its own work ------------------------------------------------------------------------------------------
FAULTLINE_METRICS_TOKEN = os.environ.get("FAULTLINE_METRICS_TOKEN", "").strip()
"""What Prometheus sends to read /metrics; unset: only administrators may."""
FAULTLINE_WORKER_METRICS_PORT = env.number("FAULTLINE_WORKER_METRICS_PORT", 0)
"""Port on which a worker tells its own figures, where it shares no folder with the web server; 0: none."""
PROMETHEUS_EXPORT_MIGRATIONS = False
if os.environ.get("PROMETHEUS_MULTIPROC_DIR"):
    Path(os.environ["PROMETHEUS_MULTIPROC_DIR"]).mkdir(parents=True, exist_ok=True)

# --- programs that ask ------------------------------------------------------------------------------------------------
FAULTLINE_API_RATE = env.number("FAULTLINE_API_RATE", 1200)
"""Calls a minute that one user or token may make; 0: any number."""
FAULTLINE_INGEST_CALLS = max(1, env.number("FAULTLINE_INGEST_CALLS", 4))
"""Calls that bring evidence and are done at once by one web process, and half as many that wait for a diagnosis: fewer
than it has threads, so that pages are answered meanwhile. Others are told to come back in a moment."""
FAULTLINE_SHARE_RATE = env.number("FAULTLINE_SHARE_RATE", 60)
"""Openings of share links a minute from one address, and ten times as many of one link; 0: any number."""
FAULTLINE_NVRX_ROOT = os.environ.get("FAULTLINE_NVRX_ROOT", "").strip()
"""Folder below which clients of an attribution service may name log files; unset: none may."""
FAULTLINE_NVRX_OPEN = env.flag("FAULTLINE_NVRX_OPEN")
"""Set in a network that is trusted: these clients then need no token."""
FAULTLINE_NVRX_CLUSTER = os.environ.get("FAULTLINE_NVRX_CLUSTER", "").strip()
"""The cluster that their jobs belong to."""
FAULTLINE_NVRX_WAIT_SECONDS = env.number("FAULTLINE_NVRX_WAIT_SECONDS", 45)
"""How long a result is waited for; below the 60 s after which the client gives up."""
FAULTLINE_NVRX_MAX_JOBS = env.number("FAULTLINE_NVRX_MAX_JOBS", 100_000)

# --- what is told to the outside --------------------------------------------------------------------------------------
FAULTLINE_URL = os.environ.get("FAULTLINE_URL", "").strip().rstrip("/")
"""The site's address as people reach it, like https://faultline.example.org; messages link to it."""
FAULTLINE_PRIVATE_HOSTS = env.items("FAULTLINE_PRIVATE_HOSTS")
"""Hosts in private networks that channels may reach: names, .domains, addresses, networks; * for all but the machine
itself and link-local addresses."""
FAULTLINE_DELIVERY_SECONDS = env.number("FAULTLINE_DELIVERY_SECONDS", 20, least=1)
"""Time limit of one delivery."""
DEFAULT_FROM_EMAIL = os.environ.get("FAULTLINE_MAIL_FROM") or "faultline@localhost"
EMAIL_HOST = os.environ.get("EMAIL_HOST") or "localhost"
EMAIL_PORT = env.number("EMAIL_PORT", 25)
EMAIL_HOST_USER = os.environ.get("EMAIL_HOST_USER", "")
EMAIL_HOST_PASSWORD = os.environ.get("EMAIL_HOST_PASSWORD", "")
EMAIL_USE_TLS = env.flag("EMAIL_USE_TLS")
EMAIL_USE_SSL = env.flag("EMAIL_USE_SSL")
EMAIL_TIMEOUT = FAULTLINE_DELIVERY_SECONDS

# --- sign-in and safety -----------------------------------------------------------------------------------------------
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in ("UserAttributeSimilarityValidator", "MinimumLengthValidator", "CommonPasswordValidator")
]
AUTHENTICATION_BACKENDS = ["axes.backends.AxesStandaloneBackend", "triage.access.viewer.Backend"]
ROLES = ("viewer", "responder", "rule_author", "admin")
FAULTLINE_DEFAULT_ROLE = env.one_of("FAULTLINE_DEFAULT_ROLE", "responder", ROLES)
"""Of people without a role of their own: viewer, responder, rule_author or admin."""
# who guesses passwords waits: after so many wrong ones for a name from one address, and any from one address
AXES_FAILURE_LIMIT = env.number("FAULTLINE_SIGN_IN_TRIES", 10)
AXES_COOLOFF_TIME = timedelta(minutes=15)
AXES_LOCKOUT_PARAMETERS = [["username", "ip_address"]]
AXES_RESET_ON_SUCCESS = True
AXES_DISABLE_ACCESS_LOG = True
AXES_CLIENT_IP_CALLABLE = "triage.access.address.client_address"
AXES_LOCKOUT_CALLABLE = "triage.web.views.account.locked_out"
AXES_VERBOSE = False
FAULTLINE_SIGN_IN_RATE = env.number("FAULTLINE_SIGN_IN_RATE", 60)
"""Sign-ins that are tried from one address in a minute, whatever the names; 0: any number."""

# sign-in by OpenID Connect, when a provider is named
FAULTLINE_OIDC_URL = os.environ.get("FAULTLINE_OIDC_URL", "").strip().rstrip("/")
FAULTLINE_OIDC_NAME = os.environ.get("FAULTLINE_OIDC_NAME", "").strip() or "single sign-on"
FAULTLINE_OIDC_GROUPS_CLAIM = os.environ.get("FAULTLINE_OIDC_GROUPS_CLAIM", "").strip() or "groups"
FAULTLINE_OIDC_ROLES = env.pairs("FAULTLINE_OIDC_ROLES", ROLES)
"""Group of the provider -> role. With any, who is in none of them has FAULTLINE_OIDC_ROLE, or is not let in."""
FAULTLINE_OIDC_TEAMS = env.pairs("FAULTLINE_OIDC_TEAMS")
"""Group of the provider -> team."""
FAULTLINE_OIDC_ROLE = env.one_of("FAULTLINE_OIDC_ROLE", "", ("", *ROLES))
SOCIALACCOUNT_ADAPTER = "triage.access.single_sign_on.Adapter"
SOCIALACCOUNT_ONLY = True
SOCIALACCOUNT_LOGIN_ON_GET = True  # a form that leads to another site would need a hole in the CSP
SOCIALACCOUNT_EMAIL_AUTHENTICATION = False
ACCOUNT_EMAIL_VERIFICATION = "none"
ACCOUNT_UNIQUE_EMAIL = False
ACCOUNT_RATE_LIMITS = False
SOCIALACCOUNT_PROVIDERS = {"openid_connect": {"OAUTH_PKCE_ENABLED": True, "APPS": env.oidc_apps()}}
LOGIN_URL = "login"
LOGIN_REDIRECT_URL = "/"
LOGOUT_REDIRECT_URL = "login"
HTTPS = env.flag("FAULTLINE_HTTPS")
"""Set where the site is reached by https: cookies and redirects then insist on it."""
SECURE_SSL_REDIRECT = HTTPS
SECURE_REDIRECT_EXEMPT = [r"^(healthz|readyz|metrics)$"]  # asked for on the spot, without the proxy
SECURE_HSTS_SECONDS = 31_536_000 if HTTPS else 0
SILENCED_SYSTEM_CHECKS = ["security.W005", "security.W021"]
"""Whether all names below this one speak https, and should be on browsers' lists, only their owner can say."""
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if env.flag("FAULTLINE_BEHIND_PROXY") else None
SECURE_REFERRER_POLICY = "same-origin"
SECURE_CROSS_ORIGIN_OPENER_POLICY = "same-origin"
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = HTTPS
if HTTPS:  # browsers then take them from this very host alone, so that no other name below the domain can plant one
    SESSION_COOKIE_NAME, CSRF_COOKIE_NAME = "__Host-sessionid", "__Host-csrftoken"
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
CSRF_COOKIE_HTTPONLY = True
CSRF_COOKIE_SAMESITE = "Lax"
X_FRAME_OPTIONS = "DENY"
CONTENT_SECURITY_POLICY = {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self'",
    "img-src": "'self' data:",
    "font-src": "'self'",
    "connect-src": "'self'",
    "form-action": "'self'",
    "frame-ancestors": "'none'",
    "base-uri": "'none'",
    "manifest-src": "'self'",
}
FILE_UPLOAD_MAX_MEMORY_SIZE = 4 * 1024**2
FILE_UPLOAD_TEMP_DIR = tempfile.gettempdir()
DATA_UPLOAD_MAX_NUMBER_FILES = 1000

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "triage.api.authentication.TokenAuthentication",
        "triage.api.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["triage.api.permissions.ScopePermission"],
    "DEFAULT_THROTTLE_CLASSES": ["triage.api.throttling.RateThrottle"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["rest_framework.parsers.JSONParser"],
    "DEFAULT_SCHEMA_CLASS": "triage.api.openapi.Schema",
    "DEFAULT_CONTENT_NEGOTIATION_CLASS": "triage.api.negotiation.JsonAlways",
    "EXCEPTION_HANDLER": "triage.api.problems.problem",
    "UNAUTHENTICATED_USER": "django.contrib.auth.models.AnonymousUser",
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Faultline",
    "DESCRIPTION": "Why did an attempt fail: send what is known of it, read the diagnosis with its evidence.",
    "VERSION": "1",
    "OAS_VERSION": "3.1.0",
    "SERVE_INCLUDE_SCHEMA": False,
    "SCHEMA_PATH_PREFIX": "/api/v1",
    "COMPONENT_SPLIT_REQUEST": True,
    "ENUM_ADD_EXPLICIT_BLANK_NULL_CHOICE": False,
    "PREPROCESSING_HOOKS": ["triage.api.openapi.only_v1"],
    "POSTPROCESSING_HOOKS": ["triage.api.openapi.complete"],
    "SECURITY": [],
}

# --- language, time, files --------------------------------------------------------------------------------------------
LANGUAGE_CODE = "en-us"
TIME_ZONE = "UTC"
USE_TZ = True
USE_I18N = False
STATIC_URL = "static/"
STATIC_ROOT = Path(os.environ.get("FAULTLINE_STATIC_ROOT") or STATE_DIR / "static")
with suppress(OSError):
    STATIC_ROOT.mkdir(parents=True, exist_ok=True)
STATICFILES_DIRS = [BASE_DIR / "static"] if (BASE_DIR / "static").is_dir() else []
WHITENOISE_USE_FINDERS = True
WHITENOISE_AUTOREFRESH = DEBUG
# Whoever names a folder for static files runs collectstatic; elsewhere WhiteNoise finds them where they are.
_collected = not DEBUG and bool(os.environ.get("FAULTLINE_STATIC_ROOT"))
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {
        "BACKEND": "whitenoise.storage.CompressedManifestStaticFilesStorage"
        if _collected
        else "django.contrib.staticfiles.storage.StaticFilesStorage"
    },
}

LOGGING = logs.config()
LOGGING["loggers"]["django.request"] = {"level": "ERROR" if not DEBUG else "WARNING"}
