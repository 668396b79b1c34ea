# The dashboard over a store, and every command that needs no PyTorch:
#   docker build -t nearpeak .
#   docker run -p 127.0.0.1:8642:8642 -v "$PWD/team.db:/data/team.db" nearpeak serve --store /data/team.db --host 0.0.0.0
#   docker run nearpeak bound gemm m=4096 n=4096 k=4096 dtype=bf16 --target h100_sxm --text
FROM python:3.12-slim AS build
WORKDIR /source
COPY pyproject.toml README.md LICENSE NOTICE ./
COPY src ./src
RUN python -m venv /opt/nearpeak && /opt/nearpeak/bin/pip install --no-cache-dir ".[speed,tables,web]"

FROM python:3.12-slim
RUN useradd --create-home nearpeak
COPY --from=build /opt/nearpeak /opt/nearpeak
ENV PATH="/opt/nearpeak/bin:$PATH"
USER nearpeak
WORKDIR /data
EXPOSE 8642
ENTRYPOINT ["nearpeak"]
CMD ["--help"]
