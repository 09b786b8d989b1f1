# syntax=docker/dockerfile:1
# Builds Mainstay and puts the one binary into a small image with a user of its own.
#
#   docker build -t mainstay .
#   docker run -i --rm -v "$PWD/examples/assets:/srv/assets:ro" \
#     -e SYN_SCHEMAS_DIR=/srv/assets/jsonschema -e SYN_EXAMPLES_DIR=/srv/assets/examples mainstay
#
# A lasting server on a socket: -e MCP_ENDPOINT=socket -e MCP_SOCKET_PATH=/run/mainstay/mcp.sock

FROM rust:1.95-slim-bookworm AS build
WORKDIR /src
COPY . .
RUN cargo build --release --locked --package mainstay \
 && install -D target/release/mainstay /out/mainstay

FROM debian:bookworm-slim
# Numbers, not names: an orchestrator that insists on a user other than root can read them.
RUN groupadd --gid 65532 mainstay \
 && useradd --uid 65532 --gid 65532 --no-create-home --shell /usr/sbin/nologin mainstay \
 && install -d -o 65532 -g 65532 -m 0700 /run/mainstay
COPY --from=build /out/mainstay /usr/local/bin/mainstay
USER 65532:65532
WORKDIR /srv
ENV MCP_READY_FILE=/tmp/mcp.ready \
    MCP_SOCKET_PATH=/run/mainstay/mcp.sock \
    MAINSTAY_RUNTIME_DIR=/run/mainstay
# The ready file names the process that wrote it; both must be there.
HEALTHCHECK --interval=10s --timeout=2s --start-period=5s --retries=3 \
  CMD ["sh", "-c", "read -r pid _ < /tmp/mcp.ready && kill -0 \"$pid\""]
STOPSIGNAL SIGTERM
ENTRYPOINT ["/usr/local/bin/mainstay"]
