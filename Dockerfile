# fairfix as a container. Mount a folder with data at /data:
#   docker build -t fairfix .
#   docker run --rm -v "$PWD:/data" fairfix audit loans.parquet --protected race --out html=audit.html
# On Linux, add --user "$(id -u):$(id -g)" so that reports belong to you.
FROM python:3.12-slim AS build
WORKDIR /src
RUN python -m pip install --no-cache-dir build
COPY pyproject.toml README.md LICENSE ./
COPY fairfix fairfix
RUN python -m build --wheel --outdir /dist .

FROM python:3.12-slim
COPY --from=build /dist /dist
# model files in .skops and .onnx, and the pictures of compare, come with their extras
RUN wheel="$(echo /dist/*.whl)" \
    && python -m pip install --no-cache-dir --no-compile "$wheel[skops,onnx,plot]" \
    && rm -r /dist \
    && useradd --create-home --uid 10001 fairfix
ENV PYTHONDONTWRITEBYTECODE=1 \
    MPLCONFIGDIR=/tmp/matplotlib
USER fairfix
WORKDIR /data
ENTRYPOINT ["fairfix"]
CMD ["--help"]
