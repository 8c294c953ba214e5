# The image of the plugin and the worker: docker build -t REGISTRY/gpustack-delivery:VERSION .
# Every wheel it takes exists for linux/amd64 and linux/arm64, so buildx --platform builds both.
ARG PYTHON=docker.io/library/python:3.12-slim-bookworm

FROM ${PYTHON} AS build
RUN python -m venv /opt/gpustack-delivery
COPY requirements/run.lock /src/requirements/
RUN /opt/gpustack-delivery/bin/pip install --no-cache-dir --require-hashes -r /src/requirements/run.lock
COPY pyproject.toml README.md LICENSE /src/
COPY gpustack_delivery /src/gpustack_delivery
RUN /opt/gpustack-delivery/bin/pip install --no-cache-dir --no-deps /src

# Nothing is added to the base: mounts are system calls, hashes are libcrypto's, and the CA certificates, `sleep` and
# glibc that this needs are all there.
FROM ${PYTHON}
COPY --from=build /opt/gpustack-delivery /opt/gpustack-delivery
ENV PATH=/opt/gpustack-delivery/bin:$PATH
# The worker's user; the chart runs the plugin as root, which mounting needs.
USER 65534:65534
ENTRYPOINT ["gpustack-delivery"]
