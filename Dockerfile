# fedtide with the extra `all`, at the pinned versions:
#   docker build -t fedtide . && docker run --rm --user "$(id -u):$(id -g)" -v "$PWD":/project fedtide run
FROM python:3.11-slim

RUN apt-get update \
 && apt-get install -y --no-install-recommends git \
 && rm -rf /var/lib/apt/lists/*

COPY . /usr/src/fedtide
RUN pip install --no-cache-dir -c /usr/src/fedtide/constraints.txt "/usr/src/fedtide[all]" \
 && rm -r /usr/src/fedtide

ENV DVC_NO_ANALYTICS=1 MLFLOW_DISABLE_TELEMETRY=true HOME=/project
WORKDIR /project
EXPOSE 5000 8000
ENTRYPOINT ["fedtide"]
CMD ["--help"]
