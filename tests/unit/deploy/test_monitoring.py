"""Prometheus' rules and Grafana's dashboard use existing metrics, labels and documentation
pages.
"""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator

import pytest
import yaml

from harness import ROOT
from tests.e2e.pages import blocks
from tests.e2e.pictures import as_base64, scene
from tests.e2e.test_docs import anchors
from tests.skips import require
from utils.triton.health import Health
from utils.triton.metrics import health_metrics

FOLDER = ROOT / "deploy" / "monitoring"
ALERTS = [
    rule
    for group in yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"]
    for rule in group["rules"]
]
PANELS = json.loads((FOLDER / "grafana" / "dashboards" / "mobile_sam.json").read_text())["panels"]
AUTOSCALING = ROOT / "deploy" / "kubernetes" / "components" / "autoscaling" / "scaledobject.yaml"
TRIGGERS = {
    each["name"]: each["metadata"]
    for each in yaml.safe_load(AUTOSCALING.read_text())["spec"]["triggers"]
}
PAGE = (ROOT / "docs" / "monitoring.md").read_text()
BLOCKS = blocks("docs/monitoring.md", PAGE)
METRIC = re.compile(r"\b(?:mobile_sam|bentoml|nv)_\w+\b")
SELECTION = re.compile(r"(\w+)\{([^}]*)\}")
STRING = re.compile(r'"[^"]*"')
GROUPING = re.compile(r"\bby \(([^)]*)\)")
PROMETHEUS_LABELS = {"job", "instance"}
"""Labels that Prometheus adds to every scraped series."""
GPU_METRICS = {"nv_gpu_utilization", "nv_gpu_memory_used_bytes", "nv_gpu_memory_total_bytes"}
"""Metrics that Triton exports only on a machine with a GPU, according to NVIDIA's documentation."""


def queries() -> Iterator[tuple[str, str]]:
    """Yield the source and text of every query, with values for Grafana's variables and without
    a namespace.
    """
    for alert in ALERTS:
        yield alert["alert"], alert["expr"]
    for panel in PANELS:
        for target in panel.get("targets", []):
            expr = target["expr"].replace("$__rate_interval", "1m").replace("$instance", ".*")
            yield f"panel {panel['title']}", expr
    for name, trigger in TRIGGERS.items():
        yield f"trigger {name}", trigger["query"].replace(', namespace="mobile-sam"', "")
    for block in BLOCKS:
        if block.language == "promql":
            yield str(block), block.code


QUERIES = list(queries())


def labels_by_metric(text: str) -> dict[str, set[str]]:
    """Return the label names of each metric in a `/metrics` response."""
    found: dict[str, set[str]] = {}
    for name, _, labels in re.findall(r"^(\w+)(\{([^}]*)\})? [\d.e+-]+$", text, re.MULTILINE):
        found.setdefault(name, set()).update(re.findall(r'(\w+)="', labels))
    return found


@pytest.mark.e2e
@pytest.mark.slow
def test_queries_use_exported_metrics_and_labels(builtin_server):
    assert builtin_server.post("/embed", input_image=as_base64(scene(81))).ok
    assert builtin_server.post("/mobile_sam").status_code == 422
    text = builtin_server.wait_for_metric("mobile_sam_stage_total{")
    exported = labels_by_metric(
        text + health_metrics(Health("ready", restarts={"died": 1})).decode()
    )
    for source, query in QUERIES:
        metrics = set(METRIC.findall(STRING.sub("", query))) - GPU_METRICS
        assert metrics <= set(exported), source
        for metric, selection in SELECTION.findall(query):
            labels = set(re.findall(r"(\w+)\s*(?:=|!)", STRING.sub("", selection)))
            assert labels <= exported.get(metric, set()) | PROMETHEUS_LABELS, (source, metric)
        grouped = {
            label.strip() for labels in GROUPING.findall(query) for label in labels.split(",")
        }
        assert grouped <= set.union(PROMETHEUS_LABELS, *(exported[metric] for metric in metrics)), (
            source
        )


def promtool(*arguments: str) -> None:
    command = [require("promtool"), *arguments]
    done = subprocess.run(
        command, cwd=FOLDER, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_promtool_accepts_rules_queries_and_configurations_and_the_alerts_fire(tmp_path):
    promtool("check", "rules", "alerts.yml")
    promtool("test", "rules", "alerts_test.yml")
    rules = [
        {"record": f"panel_{number}", "expr": query} for number, (_, query) in enumerate(QUERIES)
    ]
    (tmp_path / "rules.yml").write_text(
        yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]})
    )
    promtool("check", "rules", str(tmp_path / "rules.yml"))
    shutil.copy(FOLDER / "alerts.yml", tmp_path)
    configurations = [
        (FOLDER / name).read_text() for name in ("prometheus.yml", "prometheus-with-key.yml")
    ]
    for configuration in [
        *configurations,
        *(block.code for block in BLOCKS if block.language == "yaml"),
    ]:
        (tmp_path / "prometheus.yml").write_text(configuration)
        promtool("check", "config", "--syntax-only", str(tmp_path / "prometheus.yml"))


def test_autoscaler_counts_busy_replicas_and_seconds_in_queues(tmp_path):
    own = 'job="mobile_sam", namespace="mobile-sam"'
    values = {
        f'mobile_sam_requests_in_progress{{{own}, pod="busy"}}': "3x20",
        f'mobile_sam_requests_in_progress{{{own}, pod="idle"}}': "0x20",
        'mobile_sam_requests_in_progress{job="mobile_sam", namespace="other"}': "1x20",
        f'nv_inference_request_success{{{own}, model="mobile_sam"}}': "0+15x20",
        f'nv_inference_queue_duration_us{{{own}, model="mobile_sam_encoder"}}': "0+6000000x20",
        f'nv_inference_queue_duration_us{{{own}, model="mobile_sam_everything"}}': "0+99000000x20",
    }
    expected = {"idle": 2, "queue": 0.4}
    queries = [
        {
            "expr": trigger["query"],
            "eval_time": "4m",
            "exp_samples": [{"labels": "{}", "value": expected[name]}],
        }
        for name, trigger in TRIGGERS.items()
    ]
    series = [{"series": name, "values": each} for name, each in values.items()]
    test = {"interval": "15s", "input_series": series, "promql_expr_test": queries}
    (tmp_path / "test.yml").write_text(
        yaml.safe_dump({"evaluation_interval": "15s", "tests": [test]})
    )
    promtool("test", "rules", str(tmp_path / "test.yml"))


def test_every_alert_has_a_severity_a_test_and_a_runbook():
    assert len(ALERTS) >= 5
    tested = (FOLDER / "alerts_test.yml").read_text()
    for alert in ALERTS:
        assert f'"{alert["alert"]}"' in tested
        assert alert["labels"]["severity"] in {"critical", "warning", "info"}
        page, _, anchor = alert["annotations"]["runbook"].partition("#")
        assert anchor in anchors(ROOT / page)
