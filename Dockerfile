# syntax=docker/dockerfile:1
# One image for every process of compose.yaml: the servers and the workers then share one set of pinned libraries.
#
#   docker build --tag sightline:cpu .
#   docker build --tag sightline:gpu --build-arg ACCELERATOR=gpu .
#
# ACCELERATOR  cpu or gpu, as in the Makefile; a GPU needs a driver for CUDA 13.0 (580 or later) and the NVIDIA
#              container toolkit.
# TORCH_INDEX  address of a package index with CPU builds of torch, as in the Makefile; only for cpu.
ARG ACCELERATOR=cpu

FROM python:3.11-slim-bookworm AS base-cpu
RUN apt-get update \
    && apt-get install --yes --no-install-recommends build-essential libnuma1 make \
    && rm -rf /var/lib/apt/lists/*

# CUDA's version is that of the pinned torch; "devel" because FlashInfer and Triton compile kernels when they first run.
FROM nvidia/cuda:13.0.2-devel-ubuntu24.04 AS base-gpu
RUN apt-get update \
    && apt-get install --yes --no-install-recommends build-essential libnuma1 make python3 python3-dev python3-venv \
    && rm -rf /var/lib/apt/lists/*

# hadolint ignore=DL3006
FROM base-${ACCELERATOR}
ARG ACCELERATOR
ARG TORCH_INDEX=""
SHELL ["/bin/bash", "-euo", "pipefail", "-c"]
WORKDIR /app

# What decides the installation comes first and alone: a changed source then installs nothing again. The empty packages
# tell the editable installation where the sources will lie.
COPY Makefile pyproject.toml constraints.txt README.md LICENSE ./
COPY startup startup
RUN --mount=type=cache,target=/root/.cache/pip \
    mkdir flows sightline_tools tasks rl_core \
    && touch flows/__init__.py sightline_tools/__init__.py tasks/__init__.py rl_core/__init__.py \
    && make install-image ACCELERATOR="${ACCELERATOR}" TORCH_INDEX="${TORCH_INDEX}"

COPY prefect.toml prefect.yaml ./
COPY configs configs
COPY rl_core rl_core
COPY tasks tasks
COPY sightline_tools sightline_tools
COPY flows flows

# A new named volume takes over owner and rights of the folder that it is mounted on.
RUN useradd --uid 10001 --create-home sightline \
    && mkdir -p runs /cache /artifacts \
    && chown sightline:sightline . runs /cache /artifacts
USER 10001

# Telemetry as in rl_core/environment.py: the servers do not pass through it.
ENV PATH=/app/.venv/bin:$PATH \
    HF_HOME=/cache/huggingface \
    XDG_CACHE_HOME=/cache \
    DO_NOT_TRACK=true \
    HF_HUB_DISABLE_TELEMETRY=1 \
    MLFLOW_DISABLE_TELEMETRY=true \
    PREFECT_SERVER_ANALYTICS_ENABLED=false \
    RAY_USAGE_STATS_ENABLED=0 \
    VLLM_NO_USAGE_STATS=1 \
    WANDB_ERROR_REPORTING=false
CMD ["sightline", "--help"]
