"""Headers, methods and paths that client libraries allow but sensible clients do not send."""

from __future__ import annotations

CONTENT_TYPES = (
    *("", " ", "text/plain", "application/json; charset=utf-16", "application/json;", "APPLICATION/JSON", "json"),
    *("application/problem+json", "application/x-www-form-urlencoded", "multipart/form-data", "*/*", "a" * 5000),
    *("multipart/form-data; boundary=x", "application/json, text/html", "application/json\xff", '";"/";"'),
)
HEADERS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("Content-Type", CONTENT_TYPES),
    ("Content-Encoding", ("gzip", "br", "identity", "x")),
    ("Content-Length", ("0", "1", "-1", "+5", "0x10", "1e3", "", "99999999999999999999", "abc", "5, 5")),
    ("Transfer-Encoding", ("chunked", "identity", "gzip, chunked", "chunked, chunked", "x")),
    ("Accept", ("text/html", "image/png", "", "*/*;q=0", "x" * 9000)),
    ("Accept-Encoding", ("gzip", "br;q=9", "identity;q=0, *;q=0", "")),
    ("Expect", ("100-continue", "200-ok")),
    ("Connection", ("close", "upgrade", "keep-alive, x", "")),
    ("Upgrade", ("websocket", "h2c", "TLS/1.0")),
    ("Authorization", ("Bearer", "Bearer \xff", "Basic Og==", "x" * 3000)),
    ("Range", ("bytes=0-1", "bytes=-9999999999999")),
    ("If-None-Match", ("*", '"x"')),
    ("Host", ("", "a b", "[::1", "x" * 1000, "evil.example:99999")),
    ("X-Forwarded-For", ("127.0.0.1", "x", ", ,", "::1%0", "1" * 3000)),
    ("X-Request-Id", ("\xff", "a" * 2000, "{}")),
    ("traceparent", ("00-0-0-0", "x", "00-" + "f" * 32 + "-" + "f" * 16 + "-ff")),
    ("Cookie", ("a" * 4000, "=;=;", "\xe9")),
    ("Bentoml-Payload-Meta", ("{}", "x", "[")),
    ("X" * 300, ("x",)),
)
"""Headers with odd values."""
HANDSHAKE = (
    ("Connection", "Upgrade"),
    ("Upgrade", "websocket"),
    ("Sec-WebSocket-Version", "13"),
    ("Sec-WebSocket-Key", "AAAAAAAAAAAAAAAAAAAAAA=="),
)
"""Headers of a WebSocket handshake."""

METHODS = ("GET", "HEAD", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "PROPFIND", "post", "BREW", "POST")
PATHS = (
    *("/", "", "//", "/mobile_sam/", "//mobile_sam", "/Mobile_Sam", "/mobile_sam?x=1", "/mobile_sam%00", "/embed;x=1"),
    *("/embed#x", "/../mobile_sam", "/%2e%2e/%2e%2e/etc/passwd", "/static_content/../service.py", "/docs.json"),
    *("/static_content/swagger-ui.css", "/static_content/%2e%2e/%2e%2e/main.py", "/livez", "/readyz", "/healthz"),
    *("/metrics", "/v2/models", "/v2/repository/index", "/%ff%fe", "/%", "/a" * 2000, "http://x/mobile_sam", "*"),
    *("/mobile_sam/predict", "/favicon.ico", "/.env", "/docs", "/schema.json", "/?a[]=1&a=%zz", "/%C3%A9"),
)
