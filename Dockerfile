# Faultline for web servers, workers and beat: one image, three commands (docker-compose.yml).

FROM python:3.12-slim AS build
WORKDIR /app
RUN python -m venv /app/.venv
COPY requirements/base.txt requirements/base.txt
RUN /app/.venv/bin/pip install --no-cache-dir --require-hashes -r requirements/base.txt
COPY manage.py ./
COPY engine engine
COPY connectors connectors
COPY triage triage
COPY templates templates
COPY static static
ENV DJANGO_SETTINGS_MODULE=triage.settings FAULTLINE_STATIC_ROOT=/app/staticfiles
RUN SECRET_KEY=only-for-this-step /app/.venv/bin/python manage.py collectstatic --no-input \
    && /app/.venv/bin/python -m compileall -q engine connectors triage

FROM python:3.12-slim
RUN useradd --uid 10001 --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin faultline \
    && install -d -o faultline -g faultline /data /state
COPY --from=build /app /app
WORKDIR /app
ENV PATH=/app/.venv/bin:$PATH \
    PROMETHEUS_MULTIPROC_DIR=/tmp/faultline-metrics \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    XDG_CACHE_HOME=/tmp/cache \
    DJANGO_SETTINGS_MODULE=triage.settings \
    FAULTLINE_STATIC_ROOT=/app/staticfiles \
    FAULTLINE_DATA_DIR=/data \
    FAULTLINE_STATE_DIR=/state
USER faultline
VOLUME ["/data", "/state"]
EXPOSE 8000
CMD ["gunicorn", "--config", "python:triage.web_server", "triage.wsgi:application", "--bind", "0.0.0.0:8000", \
     "--workers", "2", "--threads", "8", "--worker-tmp-dir", "/dev/shm", "--no-control-socket"]
