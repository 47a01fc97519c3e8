# Unrolled on a CPU.
#   docker build -t unrolled --build-arg TORCH_INDEX=… .
#   docker run --rm unrolled doctor
#   docker run --rm -v "$PWD:/data" unrolled run model.safetensors --prompt "It was"
#   docker run --rm -v "$PWD:/data" --user "$(id -u)" unrolled train generate --train book.txt --out runs/book
#   docker run --rm -v "$PWD:/data:ro" -p 127.0.0.1:8700:8700 unrolled \
#       serve mood=runs/mood --host 0.0.0.0 --api-key-file keys.txt

FROM python:3.13-slim-bookworm AS build
RUN apt-get update && apt-get install --yes --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*
WORKDIR /source
COPY CMakeLists.txt LICENSE README.md pyproject.toml ./
COPY native native
COPY unrolled unrolled
ENV UNROLLED_REQUIRE_NATIVE=1
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:3.13-slim-bookworm
# The package index of torch's CPU builds (see pytorch.org): the usual build brings gigabytes of GPU libraries. It is one
# more index, since it has not every version of what torch needs; pip takes its 2.13.0+cpu before PyPI's 2.13.0.
ARG TORCH_INDEX=
COPY constraints.txt /tmp/constraints.txt
RUN --mount=from=build,source=/wheels,target=/wheels \
    pip install --no-cache-dir -c /tmp/constraints.txt ${TORCH_INDEX:+--extra-index-url "$TORCH_INDEX"} torch \
    && pip install --no-cache-dir -c /tmp/constraints.txt "$(echo /wheels/unrolled-*.whl)[serve]" \
    && rm /tmp/constraints.txt
RUN useradd --create-home --uid 1000 unrolled && install --directory --owner unrolled /data
USER unrolled
WORKDIR /data
EXPOSE 8700
ENV PYTHONUNBUFFERED=1 MPLCONFIGDIR=/tmp/matplotlib
RUN unrolled doctor --need native
ENTRYPOINT ["unrolled"]
CMD ["--help"]
