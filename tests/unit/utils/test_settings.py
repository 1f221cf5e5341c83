"""Settings from the environment."""

import re
from pathlib import Path

import pytest
from pydantic import ValidationError

from sam_onnx.download import cache_directory
from utils.settings import PREFIX, Settings, SettingsError, check_names, known_variables

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def read(monkeypatch):
    """Return a function that reads a setting from its variable."""

    def value_of(name: str, text: str) -> object:
        monkeypatch.setenv(PREFIX + name, text)
        return getattr(Settings.from_environment(), name.lower())

    return value_of


def accepted(name: str, *texts: str) -> list[tuple[str, str, str]]:
    """Return cases of values that are kept as they are."""
    return [(name, text, text) for text in texts]


def refused(name: str, message: str, *texts: str) -> list[tuple[str, str, str]]:
    return [(name, text, message) for text in texts]


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("MAX_BODY_BYTES", "", 32 * 2**20),
        ("MODEL_REPOSITORY", "/models", Path("/models")),
        ("MAX_BODY_BYTES", "1000", 1000),
        ("INFERENCE_TIMEOUT", "2.5", 2.5),
        ("EMBEDDING_CACHE_BYTES", "0", 0),
        ("THREADS", "3", 3),
        ("LABEL_STUDIO_URL", "http://localhost:8080/ls/", "http://localhost:8080/ls"),
        (
            "IMAGE_ORIGINS",
            "https://images.example/, http://localhost:9000,10.20.0.0/16",
            ("https://images.example", "http://localhost:9000", "10.20.0.0/16"),
        ),
        ("INTEGRATIONS", "none", ()),
        ("INTEGRATIONS", "cvat, samapi", ("cvat", "samapi")),
        *accepted("ENGINE", "auto", "openvino-bf16"),
        *accepted(
            "REDIS_URL", "redis://localhost:6379/0", "rediss://host", "unix:///run/redis.sock"
        ),
        (
            "CORS_ORIGINS",
            "https://a.example, http://b.example:8080",
            ("https://a.example", "http://b.example:8080"),
        ),
        ("CORS_ORIGINS", "*", ("*",)),
        ("HOSTS", "segment.example, *.example.org", ("segment.example", "*.example.org")),
        *accepted("MODEL_CONTROL_MODE", "poll"),
    ],
)
def test_value_is_accepted_and_converted_to_its_type(read, name, text, value):
    assert read(name, text) == value


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        *refused(
            "MAX_BODY_BYTES",
            "expected a positive whole number, got {!r}",
            "many",
            "0",
            "-5",
            "1.5",
            "nan",
        ),
        *refused(
            "INFERENCE_TIMEOUT",
            "expected a positive number, got {!r}",
            "soon",
            "0",
            "-5",
            "nan",
            "inf",
        ),
        *refused("EMBEDDING_CACHE_BYTES", "expected a positive whole number or 0, got {!r}", "-1"),
        *refused(
            "ENGINE", "expected one of auto, onnxruntime, openvino, openvino-bf16, got {!r}", "fast"
        ),
        *refused(
            "REDIS_URL",
            "expected a URL with redis://, rediss://, unix://",
            "localhost:6379",
            "http://:secret@localhost:6379",
            "REDIS",
        ),
        *refused("METRICS", "expected open or key, got {!r}", "shut"),
        *refused("LOG_FORMAT", "expected text, json or console, got {!r}", "xml"),
        *refused("MODEL_CONTROL_MODE", "expected none, explicit or poll, got {!r}", "always"),
        *refused(
            "MODEL_REPOSITORY",
            "expected a folder, or a URL with s3://, gs://, as://, got {!r}",
            "ftp://host/a",
        ),
        *refused(
            "CORS_ORIGINS",
            "expected origins such as https://a.example, or *, got {!r}",
            "a.example",
            "https://a.example/",
            "https://a.example/page",
        ),
        *refused(
            "HOSTS",
            "expected host names without a port, such as segment.example or *.example.org, got"
            " {!r}",
            "https://segment.example",
            "segment.example:3000",
            "segment.example/ui",
        ),
        *refused(
            "CORS_ORIGINS",
            "expected origins such as https://a.example, or *, got ''",
            "https://a.example,,",
        ),
        *refused(
            "IMAGE_ORIGINS",
            "expected origins such as https://images.example, and networks such as 10.20.0.0/16,"
            " got {!r}",
            "images.example",
            "10.20.0.1/16",
            "*",
        ),
        *refused(
            "IMAGE_ORIGINS",
            "expected origins such as https://images.example, got {!r}",
            "https://a.example/page",
            "ftp://a.example",
            "https://a@b.example",
        ),
        *refused(
            "LABEL_STUDIO_URL",
            "expected an http or https URL, got {!r}",
            "localhost:8080",
            "http://",
            "http://a:b@c",
            "http://a:99999",
        ),
        *refused(
            "INTEGRATIONS",
            "expected none, or some of x-anylabeling, roboflow, cvat, samapi, label-studio, got"
            " {!r}",
            "paint",
        ),
        *(
            (name, "", "expected API keys, got an empty value; unset the variable to use no keys")
            for name in ("API_KEYS", "API_KEYS_FILE", "ADMIN_KEYS", "ADMIN_KEYS_FILE")
        ),
    ],
)
def test_error_names_the_variable_what_was_expected_and_what_came(read, name, text, message):
    with pytest.raises(SettingsError) as caught:
        read(name, text)
    assert str(caught.value) == f"{PREFIX}{name}: {message.format(text)}"


@pytest.mark.parametrize("text", ["http://:secret@localhost:6379", "redis://x:secret@y"])
def test_password_is_in_no_error(monkeypatch, text):
    monkeypatch.setenv(f"{PREFIX}REDIS_URL", text)
    monkeypatch.setenv(f"{PREFIX}METRICS", "shut")
    with pytest.raises(ValidationError) as caught:
        Settings()
    assert "secret" not in str(caught.value)


def test_both_packages_use_the_same_cache_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert (
        Settings.from_environment().cache_dir
        == cache_directory()
        == tmp_path / ".cache" / "mobile-sam-triton"
    )
    for name, value, folder in [
        ("XDG_CACHE_HOME", str(tmp_path / "xdg"), tmp_path / "xdg" / "mobile-sam-triton"),
        ("MOBILE_SAM_CACHE_DIR", "~/mine", tmp_path / "mine"),
    ]:
        monkeypatch.setenv(name, value)
        assert Settings.from_environment().cache_dir == cache_directory() == folder


@pytest.mark.parametrize(
    ("text", "folder"),
    [
        *(
            (url, None)
            for url in (
                "s3://bucket/models",
                "s3://http://127.0.0.1:9000/bucket/models",
                "gs://b",
                "as://a/b",
            )
        ),
        ("models", Path("/here/models")),
        ("/models", Path("/models")),
        ("", Path("/here/model_repository")),
    ],
)
def test_repository_is_a_url_or_a_folder_beside_the_service(monkeypatch, text, folder):
    monkeypatch.setenv(f"{PREFIX}MODEL_REPOSITORY", text)
    settings = Settings.from_environment()
    assert settings.repository_in(Path("/here")) == folder
    assert folder or settings.model_repository == text


@pytest.mark.parametrize(
    ("given", "encode_s", "timeout_s"),
    [(None, 0, 55), (None, 0.4, 55), (None, 16, 1024), (5, 0, 5), (5, 16, 5), (90, 0.1, 90)],
)
def test_time_limit_follows_the_encoder_unless_it_is_set(given, encode_s, timeout_s):
    assert Settings(inference_timeout=given, max_requests=32).timeout_s(encode_s) == timeout_s


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("MOBILE_SAM_API_KEY_FILE", "did you mean MOBILE_SAM_API_KEYS_FILE?"),
        ("MOBILE_SAM_INFERENCE_TIMEOUT_S", "did you mean MOBILE_SAM_INFERENCE_TIMEOUT?"),
        ("MOBILE_SAM_TRITON_METRIC_PORT", "did you mean MOBILE_SAM_TRITON_METRICS_PORT?"),
        ("MOBILE_SAM_TRITON_METRICSPORT_PORT", "did you mean MOBILE_SAM_TRITON_METRICS_PORT?"),
        ("mobile_sam_redis_url", "did you mean MOBILE_SAM_REDIS_URL?"),
        ("MOBILE_SAM_XYZZY", "docs/deployment.md#settings lists all; unset it"),
    ],
)
def test_an_unknown_variable_is_an_error_that_names_the_closest_one(
    read, monkeypatch, name, message
):
    monkeypatch.setenv(name, "8003")
    with pytest.raises(
        SettingsError, match=f"^{re.escape(f'{name}: unknown setting; {message}')}$"
    ):
        Settings.from_environment()


# As in a pod beside a Service with the port 3000, and one with a named port and another name.
SERVICE_LINKS = {
    "MOBILE_SAM_SERVICE_HOST": "10.0.0.11",
    "MOBILE_SAM_SERVICE_PORT": "3000",
    "MOBILE_SAM_SERVICE_PORT_HTTP": "3000",
    "MOBILE_SAM_PORT": "tcp://10.0.0.11:3000",
    "MOBILE_SAM_PORT_3000_TCP": "tcp://10.0.0.11:3000",
    "MOBILE_SAM_PORT_3000_TCP_PROTO": "tcp",
    "MOBILE_SAM_PORT_3000_TCP_PORT": "3000",
    "MOBILE_SAM_PORT_3000_TCP_ADDR": "10.0.0.11",
    "MOBILE_SAM_ENVOY_SERVICE_HOST": "10.0.0.12",
    "MOBILE_SAM_ENVOY_SERVICE_PORT_HTTP2": "80",
    "MOBILE_SAM_ENVOY_PORT": "tcp://10.0.0.12:80",
    "MOBILE_SAM_ENVOY_PORT_80_TCP_ADDR": "10.0.0.12",
    "MOBILE_SAM_DNS_PORT_53_UDP": "udp://10.0.0.13:53",
}


def test_variables_of_services_in_the_cluster_and_of_clients_are_no_settings():
    check_names(
        {
            **SERVICE_LINKS,
            "MOBILE_SAM_URL": "http://a",
            "MOBILE_SAM_API_KEY": "a key",
            "PATH": "/bin",
        }
    )
    with pytest.raises(SettingsError, match="MOBILE_SAM_PORT: unknown setting"):
        check_names({"MOBILE_SAM_PORT": "3000"})


FILES_WITH_SETTINGS = ["README.md", "Makefile", "Dockerfile", "docker-compose.yml", ".env.example"]
FOLDERS_WITH_SETTINGS = ["docs", "deploy", "examples", "harness", "model_repository", "client"]


def test_every_variable_that_files_name_is_known():
    folders = [path for folder in FOLDERS_WITH_SETTINGS for path in (ROOT / folder).rglob("*")]
    texts = {".md", ".yml", ".yaml", ".env", ".py", ".ipynb", ".pbtxt"}
    files = [ROOT / name for name in FILES_WITH_SETTINGS] + [
        path for path in folders if path.suffix in texts
    ]
    named: dict[str, Path] = {}
    for path in files:
        found = re.findall(
            r"\bMOBILE_SAM_[A-Z0-9_]*[A-Z0-9]\b(?!\*)", path.read_text(encoding="utf-8")
        )
        named |= dict.fromkeys(found, path)
    assert len(named) > 30
    assert {name: path for name, path in named.items() if name not in known_variables()} == {}
