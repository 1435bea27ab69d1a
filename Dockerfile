# syntax=docker/dockerfile:1
#
# NVIDIA's PyTorch image, which has Nsight Systems (nsys) and Nsight Compute (ncu), with this project.
#
#   docker build -t profiling-nanogpt .
#   docker run --rm --gpus all --ipc=host -v "$PWD:/work" profiling-nanogpt run -- python my_train.py
#
# GPU counters (ncu, GPU metrics of nsys) also need --cap-add=SYS_ADMIN, unless the host's driver
# gives them to all users; `docker run ... profiling-nanogpt doctor` says so.
# Another release: --build-arg PYTORCH=25.06-py3, for drivers that do not run CUDA 13.
ARG PYTORCH=25.12-py3

# what the project needs, for a checkout that is mounted (.devcontainer)
FROM nvcr.io/nvidia/pytorch:${PYTORCH} AS dev
SHELL ["/bin/bash", "-euo", "pipefail", "-c"]

# The environment lies over the image's: torch and its CUDA stay those that NVIDIA built. PIP_CONSTRAINT
# would hold all other packages to the image's versions, too.
ENV PATH=/opt/venv/bin:$PATH \
    PIP_CONSTRAINT= \
    PIP_NO_CACHE_DIR=1
RUN nsys --version && ncu --version \
    && { id ubuntu || useradd --create-home --uid 1000 --shell /bin/bash ubuntu; } \
    && python3 -m venv --without-pip --system-site-packages /opt/venv \
    && install --directory --owner=ubuntu /work
RUN --mount=type=bind,target=/source,rw \
    python -m pip install '/source[train,dev]' \
    && python -m pip uninstall --yes profiling-nanogpt \
    && chown -R ubuntu /opt/venv \
    && python -c 'import torch, triton; assert not f"{torch} {triton}".count("/opt/venv")'
USER 1000
WORKDIR /work

# the program, for runs of others
FROM dev
USER 0
RUN --mount=type=bind,target=/source,rw \
    python -m pip install --no-deps /source
USER 1000
ENTRYPOINT ["profiling-nanogpt"]
CMD ["--help"]
