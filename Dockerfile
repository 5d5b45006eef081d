# fairfix as a container. Mount a folder with data at /data:
#   docker build -t fairfix .
#   docker run --rm -v "$PWD:/data" fairfix audit loans.parquet --protected race --out html=audit.html
# On Linux, add --user "$(id -u):$(id -g)" so that reports belong to you.
# The base is pinned by digest, and packages by hash (.ci/lock.py); dependabot proposes newer ones.
FROM python:3.12-slim@sha256:78387bc3881b8273120a12ebe6c1ab22b018ccc2c9adf565ae1ac9b536e184ea AS build
WORKDIR /src
COPY .ci/build.txt ./
RUN python -m pip install --no-cache-dir --require-hashes --requirement build.txt
COPY pyproject.toml README.md LICENSE ./
COPY fairfix fairfix
RUN python -m pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir /dist .

FROM python:3.12-slim@sha256:78387bc3881b8273120a12ebe6c1ab22b018ccc2c9adf565ae1ac9b536e184ea
COPY --from=build /dist /dist
COPY .ci/image.txt /dist/
# model files in .skops and .onnx come with their extras
RUN python -m pip install --no-cache-dir --no-compile --require-hashes --requirement /dist/image.txt \
    && python -m pip install --no-cache-dir --no-compile --no-deps --no-index /dist/*.whl \
    && python -m pip check \
    && rm -r /dist \
    && useradd --create-home --uid 10001 fairfix
ENV PYTHONDONTWRITEBYTECODE=1
USER fairfix
WORKDIR /data
ENTRYPOINT ["fairfix"]
CMD ["--help"]
