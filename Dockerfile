# Milena in a container, configured as the image apache/kafka is (docs/containers.md).
#
#     make image                     # or: docker build -t milena-kafka .
#     docker run -p 9092:9092 milena-kafka
#
# Any image with Python 3.11 or later, bash and Debian's tools for users will do as BASE_IMAGE; BUILD_IMAGE, with the same
# Python at the same path, builds. FORM is compiled, which takes a C compiler in BUILD_IMAGE or apt to install one, or pure.
# `--build-arg EXTRAS=s3` adds what a tier in an object store needs. Wheels in a folder `wheels` beside this file are
# installed in place of those of a package index (.ci/containers.py image).
#
# The base is python:3.13-slim as of 5 August 2026 (Python 3.13.14, Debian trixie): the digest of the index of all platforms,
# as docker-library/repo-info lists it.
ARG BASE_IMAGE=python:3.13-slim@sha256:9662417aace5ae7b8e2609cce472b72a8958e134ba372808abe9cc1a0c0125e6
ARG BUILD_IMAGE=${BASE_IMAGE}

FROM ${BUILD_IMAGE} AS build
WORKDIR /src
ARG FORM=compiled
ARG EXTRAS
# The dependencies are a layer of their own: it is built again only if their versions change.
COPY docker/install docker/requirements*.txt ./
COPY LICENSE wheels* wheels/
RUN ./install dependencies
COPY pyproject.toml setup.py README.md LICENSE MANIFEST.in ./
COPY compiling compiling
COPY milena milena
RUN ./install milena

FROM ${BASE_IMAGE}
# The user, the folders and the command of apache/kafka. Named volumes take the owner of the folder that they cover.
# /opt/kafka belongs to the user: Testcontainers for Rust writes its start script there.
RUN groupadd --gid 1000 appuser \
    && useradd --uid 1000 --gid 1000 --no-create-home --home-dir /var/lib/kafka --shell /bin/bash appuser \
    && mkdir -p /etc/confluent/docker /etc/kafka/docker /etc/kafka/secrets /mnt/shared/config /opt/kafka \
        /var/lib/kafka/data /var/lib/kafka/tier \
    && chown -R appuser:root /etc/confluent /etc/kafka /mnt/shared/config /opt/kafka /var/lib/kafka \
    && chmod -R ug+w /etc/kafka /opt/kafka /var/lib/kafka
COPY --from=build /opt/milena /opt/milena
# Kafka's scripts, such as /opt/kafka/bin/kafka-topics.sh.
RUN /opt/milena/bin/milena scripts /opt/kafka/bin
COPY docker/run docker/health docker/bucket docker/server.properties /etc/kafka/docker/
COPY --chown=appuser:root docker/confluent /etc/confluent/docker/
COPY docker/nc /usr/local/bin/
COPY docker/server.properties /opt/kafka/config/
ENV PATH=/opt/milena/bin:/opt/kafka/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    MILENA_METRICS_PORT=9404 \
    PYTHONSAFEPATH=1 \
    PYTHONUNBUFFERED=1
USER appuser
# As in apache/kafka, where people write ./opt/kafka/bin/kafka-topics.sh.
WORKDIR /
EXPOSE 9092 9404
VOLUME ["/etc/kafka/secrets", "/mnt/shared/config", "/var/lib/kafka/data"]
# SIGTERM, which `docker stop` sends, is a controlled shutdown. With thousands of partitions it takes longer than the 10 s that
# an engine grants: `docker stop --time 60`, or stop_grace_period in a compose file.
STOPSIGNAL SIGTERM
# Every 3 s, so that what waits for a healthy node starts soon. A start interval needs Docker 25; older ones refuse the option.
HEALTHCHECK --interval=3s --timeout=3s --start-period=60s --retries=3 CMD ["/etc/kafka/docker/health"]
CMD ["/etc/kafka/docker/run"]
ARG BASE_IMAGE
ARG VERSION=0.1.0
ARG REVISION
LABEL org.opencontainers.image.title="Milena" \
      org.opencontainers.image.description="Apache Kafka, reimplemented in Python" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.base.name="${BASE_IMAGE}"
