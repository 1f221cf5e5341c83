"""Prometheus' rules and Grafana's dashboard ask for what the service shows, and lead to pages that are there."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator

import pytest
import yaml
from mobile_sam_stages import STAGES

from tests.e2e.pages import blocks
from tests.e2e.pictures import as_base64, scene
from tests.e2e.server import ROOT
from tests.e2e.test_docs import anchors
from utils.edge.counts import health_metrics
from utils.health import Health

FOLDER = ROOT / "deploy" / "monitoring"
ALERTS = [rule for group in yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"] for rule in group["rules"]]
DASHBOARD = json.loads((FOLDER / "grafana" / "dashboards" / "mobile_sam.json").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
PAGE = (ROOT / "docs" / "monitoring.md").read_text()
BLOCKS = blocks("docs/monitoring.md", PAGE)
PROVISIONING = FOLDER / "grafana" / "provisioning"
WITH_KEY = "prometheus-with-key"
OWN = re.compile(r"\b(?:mobile_sam|bentoml|nv)_\w+\b")
SELECTION = re.compile(r"(\w+)\{([^}]*)\}")
STRING = re.compile(r'"[^"]*"')
GROUPING = re.compile(r"\bby \(([^)]*)\)")
BY_PROMETHEUS = {"job", "instance"}
"""Labels that the service does not have, and every scraped series has."""
GPU_METRICS = {"nv_gpu_utilization", "nv_gpu_memory_used_bytes", "nv_gpu_memory_total_bytes"}
"""What Triton shows on a machine with a GPU alone, by NVIDIA's documentation."""
needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="no promtool on PATH; Debian's package prometheus has one"
)


def queries() -> Iterator[tuple[str, str]]:
    """What asks, and in which words; Grafana's variables have values that they may have."""
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


def shown_by(text: str) -> dict[str, set[str]]:
    """Names of labels by name of metric, of an answer of `/metrics`."""
    found: dict[str, set[str]] = {}
    for name, _, labels in re.findall(r"^(\w+)(\{([^}]*)\})? [\d.e+-]+$", text, re.MULTILINE):
        found.setdefault(name, set()).update(re.findall(r'(\w+)="', labels))
    return found


@pytest.fixture(scope="module")
def shown(builtin_server) -> dict[str, set[str]]:
    """What a service shows that has answered, and one whose Triton was started again."""
    assert builtin_server.post("/embed", input_image=as_base64(scene(81))).ok
    assert builtin_server.post("/mobile_sam").status_code == 422
    text = builtin_server.wait_for_metric("mobile_sam_stage_total{")
    return shown_by(text + health_metrics(Health("ready", restarts={"died": 1})).decode())


@pytest.mark.e2e
@pytest.mark.parametrize(("who", "query"), QUERIES, ids=[who for who, _ in QUERIES])
def test_a_query_asks_for_metrics_and_labels_that_the_service_shows(who, query, shown):
    metrics = set(OWN.findall(STRING.sub("", query))) - GPU_METRICS
    assert metrics <= set(shown)
    for metric, selection in SELECTION.findall(query):
        labels = set(re.findall(r"(\w+)\s*(?:=|!)", STRING.sub("", selection)))
        assert labels <= shown.get(metric, set()) | BY_PROMETHEUS, metric
    grouped = {label.strip() for labels in GROUPING.findall(query) for label in labels.split(",")}
    assert grouped <= set.union(BY_PROMETHEUS, *(shown[metric] for metric in metrics))


@needs_promtool
@pytest.mark.parametrize("name", ["prometheus.yml", "prometheus-with-key.yml"])
def test_prometheus_takes_its_configuration_and_the_alerts(name):
    promtool("check", "config", "--syntax-only", name)
    promtool("check", "rules", "alerts.yml")


@needs_promtool
def test_alerts_are_raised_when_they_should_be_and_not_otherwise():
    promtool("test", "rules", "alerts_test.yml")


@needs_promtool
def test_prometheus_can_read_what_the_dashboard_asks(tmp_path):
    rules = [{"record": f"panel_{number}", "expr": query} for number, (_, query) in enumerate(QUERIES)]
    file = tmp_path / "rules.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    promtool("check", "rules", str(file))


@needs_promtool
@pytest.mark.parametrize("block", [block for block in BLOCKS if block.language == "yaml"], ids=str)
def test_prometheus_takes_what_the_page_shows(block, tmp_path):
    shutil.copy(FOLDER / "alerts.yml", tmp_path)
    file = tmp_path / "prometheus.yml"
    file.write_text(block.code)
    promtool("check", "config", "--syntax-only", str(file))


def promtool(*arguments: str) -> None:
    ran = subprocess.run(["promtool", *arguments], cwd=FOLDER, capture_output=True, text=True, check=False, timeout=60)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_every_alert_has_a_test():
    assert ALERTS
    tested = (FOLDER / "alerts_test.yml").read_text()
    assert [alert["alert"] for alert in ALERTS if f'"{alert["alert"]}"' not in tested] == []


@pytest.mark.parametrize("alert", ALERTS, ids=[alert["alert"] for alert in ALERTS])
def test_an_alert_says_how_bad_it_is_and_which_page_helps(alert):
    assert alert["labels"]["severity"] in {"critical", "warning", "info"}
    assert set(alert["annotations"]) == {"summary", "description", "runbook"}
    assert "$labels.instance" in alert["annotations"]["summary"]
    page, _, anchor = alert["annotations"]["runbook"].partition("#")
    assert anchor in anchors((ROOT / page).read_text())


def test_the_page_on_monitoring_tells_of_every_alert_and_metric():
    assert [alert["alert"] for alert in ALERTS if f"`{alert['alert']}`" not in PAGE] == []
    metrics = {metric for _, query in QUERIES for metric in OWN.findall(STRING.sub("", query))}
    assert [metric for metric in sorted(metrics) if f"`{metric.removesuffix('_bucket')}`" not in PAGE] == []


def test_the_page_on_monitoring_tells_what_every_stage_is():
    assert [stage for stage in STAGES if f"| `{stage}` |" not in PAGE] == []


def test_the_configuration_with_a_key_is_the_other_one_with_a_key():
    plain, with_key = (yaml.safe_load((FOLDER / f"{name}.yml").read_text()) for name in ("prometheus", WITH_KEY))
    (job,) = with_key["scrape_configs"]
    assert job.pop("authorization") == {"credentials_file": "/run/secrets/metrics_key"}
    assert with_key == plain


def test_the_dashboard_asks_the_prometheus_that_grafana_gets():
    (source,) = yaml.safe_load((PROVISIONING / "datasources" / "prometheus.yml").read_text())["datasources"]
    variables = {variable["name"]: variable for variable in DASHBOARD["templating"]["list"]}
    assert variables["datasource"]["query"] == source["type"] == "prometheus"
    asked = [panel["datasource"] for panel in PANELS] + [t["datasource"] for panel in PANELS for t in panel["targets"]]
    assert all(datasource == {"type": "prometheus", "uid": "${datasource}"} for datasource in asked)


def test_panels_are_told_apart_and_lie_beside_each_other():
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert all(panel["title"] for panel in panels)
    assert [panel["title"] for panel in PANELS if not panel["description"]] == []
    cells = [cell for panel in panels for cell in cells_of(panel["gridPos"])]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24


def cells_of(place: dict[str, int]) -> list[tuple[int, int]]:
    """The cells of Grafana's grid, 24 wide, that a panel takes."""
    columns, rows = range(place["x"], place["x"] + place["w"]), range(place["y"], place["y"] + place["h"])
    return [(x, y) for x in columns for y in rows]
