FROM python:3.13-slim-trixie AS build

ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
RUN python -m venv /opt/instance-selector
ENV PATH=/opt/instance-selector/bin:$PATH

WORKDIR /build
# requirements-image.lock has the versions of requirements.lock without the developer's tools, and the build backend.
COPY requirements-image.lock .
RUN pip install --require-hashes --requirement requirements-image.lock

COPY pyproject.toml README.md LICENSE ./
COPY migrations migrations
COPY seed seed
COPY service service
RUN pip install --no-deps --no-build-isolation . \
    && pip uninstall --yes hatchling pathspec pluggy tomlkit trove-classifiers \
    && pip check \
    && pip uninstall --yes pip


FROM python:3.13-slim-trixie

LABEL org.opencontainers.image.title="Instance Selector" \
      org.opencontainers.image.licenses="Apache-2.0"

RUN useradd --no-log-init --uid 10001 --no-create-home --home-dir /var/lib/instance-selector instance-selector \
    && install --directory --owner=instance-selector --group=instance-selector /var/lib/instance-selector
COPY --from=build /opt/instance-selector /opt/instance-selector

ENV PATH=/opt/instance-selector/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    SELECTOR_HOST=0.0.0.0 \
    SELECTOR_PORT=8000

# By number, so that an orchestrator can see that it is not root.
USER 10001
# The database is a SQLite file here, unless SELECTOR_DATABASE_URL or DATABASE_URL names another.
WORKDIR /var/lib/instance-selector
VOLUME /var/lib/instance-selector
EXPOSE 8000

HEALTHCHECK --interval=30s --timeout=5s --start-period=20s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request; urllib.request.urlopen('http://127.0.0.1:' + os.environ['SELECTOR_PORT'] + '/healthz', timeout=4)"]

ENTRYPOINT ["instance-selector"]
CMD ["serve", "--seed-if-empty"]
