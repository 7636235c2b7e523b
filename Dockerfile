# syntax=docker/dockerfile:1
# Floodmark with a small Java and the JVM connectors baked in, as a user that is not root.
#   docker build -t floodmark .
#   docker run -v "$PWD":/project floodmark run
FROM python:3.12-slim-bookworm AS build
WORKDIR /src
COPY pyproject.toml hatch_build.py README.md LICENSE requirements.lock ./
COPY src ./src
RUN python -m venv /opt/floodmark \
    && /opt/floodmark/bin/pip install --no-cache-dir --constraint requirements.lock ".[kafka,postgres,web]"

FROM python:3.12-slim-bookworm
# Debian keeps one version of a package, so a pinned one would be gone after its next fix
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install -y --no-install-recommends openjdk-17-jre-headless tini \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 10001 --user-group --create-home floodmark \
    && install -d -o floodmark -g floodmark /project /opt/cache
COPY --from=build /opt/floodmark /opt/floodmark
ENV PATH=/opt/floodmark/bin:$PATH \
    FLOODMARK_CACHE=/opt/cache \
    PYTHONUNBUFFERED=1
# a number, by which Kubernetes sees that it is not root
USER 10001:10001
# the connectors once, here: a container then starts without a network
RUN ["python", "-m", "floodmark.spark.connectors"]
WORKDIR /project
# tini hands SIGTERM on, so that `docker stop` lets the current batch end; give it time: docker stop -t 900
ENTRYPOINT ["tini", "--", "floodmark"]
CMD ["--help"]
