"""Prometheus' rules and Grafana's dashboard use existing metrics, labels and documentation pages."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator

import pytest
import yaml

from orchestrator.stages import STAGES
from tests.e2e.pages import blocks
from tests.e2e.pictures import as_base64, scene
from tests.e2e.server import ROOT
from tests.e2e.test_docs import anchors
from utils.observability.metrics import health_metrics
from utils.triton.health import Health

FOLDER = ROOT / "deploy" / "monitoring"
ALERTS = [rule for group in yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"] for rule in group["rules"]]
DASHBOARD = json.loads((FOLDER / "grafana" / "dashboards" / "mobile_sam.json").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
PAGE = (ROOT / "docs" / "monitoring.md").read_text()
BLOCKS = blocks("docs/monitoring.md", PAGE)
PROVISIONING = FOLDER / "grafana" / "provisioning"
WITH_KEY = "prometheus-with-key"
METRIC = re.compile(r"\b(?:mobile_sam|bentoml|nv)_\w+\b")
SELECTION = re.compile(r"(\w+)\{([^}]*)\}")
STRING = re.compile(r'"[^"]*"')
GROUPING = re.compile(r"\bby \(([^)]*)\)")
PROMETHEUS_LABELS = {"job", "instance"}
"""Labels that Prometheus adds to every scraped series."""
GPU_METRICS = {"nv_gpu_utilization", "nv_gpu_memory_used_bytes", "nv_gpu_memory_total_bytes"}
"""Metrics that Triton exports only on a machine with a GPU, according to NVIDIA's documentation."""
needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="no promtool on PATH; Debian's package prometheus has one"
)


def queries() -> Iterator[tuple[str, str]]:
    """Yield the source and text of every query, with values for Grafana's variables."""
    for alert in ALERTS:
        yield alert["alert"], alert["expr"]
    for panel in PANELS:
        for target in panel["targets"]:
            expr = target["expr"].replace("$__rate_interval", "1m").replace("$instance", ".*")
            yield f"panel {panel['title']}", expr
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


@pytest.fixture(scope="module")
def exported(builtin_server) -> dict[str, set[str]]:
    """Return the labels of all metrics of a service after requests and a restart of Triton."""
    assert builtin_server.post("/embed", input_image=as_base64(scene(81))).ok
    assert builtin_server.post("/mobile_sam").status_code == 422
    text = builtin_server.wait_for_metric("mobile_sam_stage_total{")
    return labels_by_metric(text + health_metrics(Health("ready", restarts={"died": 1})).decode())


@pytest.mark.e2e
@pytest.mark.parametrize(("source", "query"), QUERIES, ids=[source for source, _ in QUERIES])
def test_query_uses_exported_metrics_and_labels(source, query, exported):
    metrics = set(METRIC.findall(STRING.sub("", query))) - GPU_METRICS
    assert metrics <= set(exported)
    for metric, selection in SELECTION.findall(query):
        labels = set(re.findall(r"(\w+)\s*(?:=|!)", STRING.sub("", selection)))
        assert labels <= exported.get(metric, set()) | PROMETHEUS_LABELS, metric
    grouped = {label.strip() for labels in GROUPING.findall(query) for label in labels.split(",")}
    assert grouped <= set.union(PROMETHEUS_LABELS, *(exported[metric] for metric in metrics))


@needs_promtool
@pytest.mark.parametrize("name", ["prometheus.yml", "prometheus-with-key.yml"])
def test_prometheus_accepts_its_configuration_and_the_alerts(name):
    promtool("check", "config", "--syntax-only", name)
    promtool("check", "rules", "alerts.yml")


@needs_promtool
def test_alerts_fire_as_expected():
    promtool("test", "rules", "alerts_test.yml")


@needs_promtool
def test_promtool_accepts_all_queries(tmp_path):
    rules = [{"record": f"panel_{number}", "expr": query} for number, (_, query) in enumerate(QUERIES)]
    file = tmp_path / "rules.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    promtool("check", "rules", str(file))


@needs_promtool
@pytest.mark.parametrize("block", [block for block in BLOCKS if block.language == "yaml"], ids=str)
def test_promtool_accepts_the_configurations_on_the_page(block, tmp_path):
    shutil.copy(FOLDER / "alerts.yml", tmp_path)
    file = tmp_path / "prometheus.yml"
    file.write_text(block.code)
    promtool("check", "config", "--syntax-only", str(file))


def promtool(*arguments: str) -> None:
    done = subprocess.run(["promtool", *arguments], cwd=FOLDER, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_has_a_test():
    assert ALERTS
    tested = (FOLDER / "alerts_test.yml").read_text()
    assert [alert["alert"] for alert in ALERTS if f'"{alert["alert"]}"' not in tested] == []


@pytest.mark.parametrize("alert", ALERTS, ids=[alert["alert"] for alert in ALERTS])
def test_alert_has_a_severity_and_a_runbook(alert):
    assert alert["labels"]["severity"] in {"critical", "warning", "info"}
    assert set(alert["annotations"]) == {"summary", "description", "runbook"}
    assert "$labels.instance" in alert["annotations"]["summary"]
    page, _, anchor = alert["annotations"]["runbook"].partition("#")
    assert anchor in anchors((ROOT / page).read_text())


def test_page_describes_every_alert_and_metric():
    assert [alert["alert"] for alert in ALERTS if f"`{alert['alert']}`" not in PAGE] == []
    metrics = {metric for _, query in QUERIES for metric in METRIC.findall(STRING.sub("", query))}
    assert [metric for metric in sorted(metrics) if f"`{metric.removesuffix('_bucket')}`" not in PAGE] == []


def test_page_describes_every_stage():
    assert [stage for stage in STAGES if f"| `{stage}` |" not in PAGE] == []


def test_configurations_differ_only_in_the_key():
    plain, with_key = (yaml.safe_load((FOLDER / f"{name}.yml").read_text()) for name in ("prometheus", WITH_KEY))
    (job,) = with_key["scrape_configs"]
    assert job.pop("authorization") == {"credentials_file": "/run/secrets/metrics_key"}
    assert with_key == plain


def test_dashboard_uses_the_provisioned_prometheus():
    (source,) = yaml.safe_load((PROVISIONING / "datasources" / "prometheus.yml").read_text())["datasources"]
    variables = {variable["name"]: variable for variable in DASHBOARD["templating"]["list"]}
    assert variables["datasource"]["query"] == source["type"] == "prometheus"
    users = [*PANELS, *(target for panel in PANELS for target in panel["targets"])]
    assert all(user["datasource"] == {"type": "prometheus", "uid": "${datasource}"} for user in users)


def test_panels_have_ids_titles_and_descriptions_and_do_not_overlap():
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert all(panel["title"] for panel in panels)
    assert [panel["title"] for panel in PANELS if not panel["description"]] == []
    cells = [cell for panel in panels for cell in cells_of(panel["gridPos"])]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24


def cells_of(position: dict[str, int]) -> list[tuple[int, int]]:
    """Return the cells that a panel occupies in Grafana's grid, which has 24 columns."""
    columns = range(position["x"], position["x"] + position["w"])
    rows = range(position["y"], position["y"] + position["h"])
    return [(x, y) for x in columns for y in rows]
