# Two stages, the second one without compilers
FROM python:3.11-slim as made

ARG DEBIAN_FRONTEND=noninteractive

RUN apt update
RUN apt-get install -y --no-install-recommends \
    build-essential \
    git

# A virtual environment
ENV VIRTUAL_ENV=/opt/venv
RUN python3 -m venv ${VIRTUAL_ENV}
ENV PATH="${VIRTUAL_ENV}/bin:$PATH"
WORKDIR /work
RUN python3 -m pip install --no-cache-dir \
    a-package \
    git+https://host.example/team/mine#egg=mine \
    --extra-index-url https://index.example/whl/cpu
    
# The image
FROM python:3.11-slim AS image
COPY --from=made /opt/venv /opt/venv
RUN useradd -ms /bin/bash user
USER user

ENV PATH="/opt/venv/bin:$PATH"
CMD ["/bin/bash"]