# The worker (and the producer) in a container.
#   docker build -t minedraft-worker --build-arg EXTRA=gpu .    for CUDA
#   docker build -t minedraft-worker --build-arg EXTRA=cpu --build-arg TORCH_CPU_INDEX=URL .
#   docker run --gpus all --shm-size 8g -e MINEDRAFT_REDIS_URL=redis://... minedraft-worker --model /models/X \
#       --tensor-parallel-size 4 --draft-model /models/Y --num-speculative-tokens 4       (4 GPUs and one for the drafter)
FROM python:3.11-slim

# vLLM compiles small kernels at run time.
RUN apt-get update && apt-get install -y --no-install-recommends gcc g++ libc6-dev libnuma1 && rm -rf /var/lib/apt/lists/*

WORKDIR /app
COPY pyproject.toml requirements.lock requirements-gpu.lock README.md LICENSE ./
COPY ops/install.sh ops/install.sh
COPY producer producer
COPY worker worker

ARG EXTRA=gpu
# PyTorch's CPU wheel index; only for EXTRA=cpu.
ARG TORCH_CPU_INDEX=
RUN if [ "$EXTRA" = cpu ]; then TORCH_CPU_INDEX="$TORCH_CPU_INDEX" ops/install.sh .venv; \
    else python -m venv .venv && .venv/bin/pip install --no-cache-dir -c requirements-gpu.lock ".[$EXTRA]"; fi

ENV PATH=/app/.venv/bin:$PATH \
    MINEDRAFT_METRICS_HOST=0.0.0.0 \
    MINEDRAFT_CACHE_DIR=/cache
RUN useradd --create-home --uid 1000 minedraft && mkdir /cache && chown minedraft /cache
USER minedraft
EXPOSE 9410
STOPSIGNAL SIGTERM
ENTRYPOINT ["worker", "run"]
