"""The chart, rendered by Helm's own code and held against Kubernetes' schemas: hardened, complete, and like compose."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.peers import leave_out

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy/helm/faultline"
PACKAGES = ("helm-python-sdk==0.2.2", "kubernetes-validate==1.37.0")
NEEDED: dict[str, Any] = {
    "image": {"repository": "registry.example.org/faultline"},
    "existingSecret": "faultline",
    "hosts": ["faultline.example.org"],
}
VALUES: dict[str, dict[str, Any]] = {
    "least": NEEDED,
    "all": {
        **NEEDED,
        "config": "[clusters.c1.sources.slurm]\n",
        "sourceSecret": "sources",
        "url": "https://faultline.example.org",
        "imagePullSecrets": [{"name": "pull"}],
        "extraEnv": {"FAULTLINE_DISCOVER_SECONDS": "60"},
        "kubernetes": {"read": True},
        "worker": {"autoscaling": {"enabled": True}, "nodeSelector": {"pool": "cpu"}},
        "ingress": {"enabled": True, "className": "nginx", "tlsSecret": "tls"},
        "networkPolicy": {
            "webFrom": [{"namespaceSelector": {"matchLabels": {"name": "ingress"}}}],
            "metricsFrom": [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}],
            "egress": [{"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}],
        },
    },
    "claimed": {
        **NEEDED, "persistence": {"existingClaim": "mine"}, "networkPolicy": {"enabled": False}, "web": {"replicas": 1},
        "https": False, "behindProxy": False,
    },
    "without image": {**NEEDED, "image": {"repository": ""}},
    "misspelt": {**NEEDED, "wroker": {}},
    "misspelt deep": {**NEEDED, "worker": {"concurency": 3}},
    "a secret typed in": {**NEEDED, "extraEnv": {"lower case": "x"}},
    "https without a proxy": {**NEEDED, "behindProxy": False},
}  # fmt: skip
GOOD = ("least", "all", "claimed")


@pytest.fixture(scope="module")
def rendered(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Name of the values -> what comes of them. HELM_PYTHON names a Python that has the packages already."""
    python = os.environ.get("HELM_PYTHON")
    if not python:
        folder = tmp_path_factory.mktemp("helm")
        for words in (
            [sys.executable, "-m", "venv", str(folder)],
            [str(folder / "bin/pip"), "install", "--quiet", "--disable-pip-version-check", *PACKAGES],
        ):
            done = subprocess.run(words, capture_output=True, text=True, timeout=400, check=False)
            if done.returncode:
                leave_out(f"{', '.join(PACKAGES)} can't be had: {done.stderr[-500:]}")
        python = str(folder / "bin/python")
    asked = json.dumps({"chart": str(CHART), "values": VALUES})
    done = subprocess.run(
        [python, str(ROOT / "tests/peers/helm_render.py")], input=asked, capture_output=True, text=True, timeout=200,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def of_kind(documents: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [one for one in documents if one["kind"] == kind]


def pods(documents: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Component and specification of every pod."""
    for one in documents:
        if one["kind"] in ("Deployment", "Job"):
            template = one["spec"]["template"]
            yield template["metadata"]["labels"]["app.kubernetes.io/component"], template["spec"]


@pytest.mark.parametrize("name", GOOD)
def test_what_comes_out_is_what_kubernetes_takes(rendered: dict[str, Any], name: str) -> None:
    assert rendered[name]["errors"] == [] and rendered[name]["lint"] == []
    assert {component for component, _ in pods(rendered[name]["documents"])} == {"web", "worker", "beat", "migrate"}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("without image", "image"), ("misspelt", "wroker"), ("misspelt deep", "concurency"),
        ("a secret typed in", "lower case"), ("https without a proxy", "needs behindProxy"),
    ],
)  # fmt: skip
def test_values_that_can_not_work_are_refused_by_name(rendered: dict[str, Any], name: str, said: str) -> None:
    (error,) = rendered[name]["errors"]
    assert said in error and rendered[name]["documents"] == []


@pytest.mark.parametrize("name", GOOD)
def test_no_pod_is_root_writes_its_image_or_holds_a_right_that_it_does_not_need(
    rendered: dict[str, Any], name: str
) -> None:
    for component, spec in pods(rendered[name]["documents"]):
        assert spec["securityContext"]["runAsNonRoot"] is True and spec["securityContext"]["runAsUser"] > 0
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        reads = VALUES[name].get("kubernetes", {}).get("read", False) and component == "worker"
        assert spec["automountServiceAccountToken"] is reads
        assert not any(spec.get(key) for key in ("hostNetwork", "hostPID", "hostIPC"))
        assert not any("hostPath" in volume for volume in spec["volumes"])
        (container,) = spec["containers"]
        safe = container["securityContext"]
        assert safe["readOnlyRootFilesystem"] is True and safe["allowPrivilegeEscalation"] is False
        assert safe["capabilities"] == {"drop": ["ALL"]} and "privileged" not in safe
        assert container["resources"]["requests"].keys() == {"cpu", "memory"}
        assert "memory" in container["resources"]["limits"]
        places = {mount["mountPath"] for mount in container["volumeMounts"]}
        assert {"/tmp", "/state"} <= places
        names = {mount["name"] for mount in container["volumeMounts"]}
        assert names == {volume["name"] for volume in spec["volumes"]}
        if component != "migrate":
            assert "livenessProbe" in container


def test_it_runs_what_compose_runs(rendered: dict[str, Any]) -> None:
    """Apart from what each says on its own: how many, and how it is logged."""
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    image = re.search(r"CMD (\[.*?\])", (ROOT / "Dockerfile").read_text().replace("\\\n", ""), re.DOTALL)
    assert image is not None
    services["web"]["command"] = json.loads(image[1])
    own = {"--loglevel", "INFO", "--quiet"}

    def plain(words: list[Any]) -> list[str]:
        return sorted(str(word) for word in words if word not in own and not re.fullmatch(r"\d+|\$\{.*\}", str(word)))

    for component, spec in pods(rendered["least"]["documents"]):
        assert plain(spec["containers"][0]["command"]) == plain(services[component]["command"]), component


def test_compose_is_as_careful(rendered: dict[str, Any]) -> None:
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    for name, service in services.items():
        assert "no-new-privileges:true" in service["security_opt"], name
        assert "privileged" not in service and service.get("network_mode") != "host", name
        assert "healthcheck" in service or name == "migrate", name
        if service["image"] == "faultline":
            assert service["read_only"] is True and service["cap_drop"] == ["ALL"], name
    dockerfile = (ROOT / "Dockerfile").read_text()
    assert re.search(r"^USER faultline$", dockerfile, re.MULTILINE) and "--uid 10001" in dockerfile


def test_what_is_set_is_what_faultline_reads(rendered: dict[str, Any]) -> None:
    known = (ROOT / "triage/settings.py").read_text() + (ROOT / "triage/logs.py").read_text()
    for _, spec in pods(rendered["all"]["documents"]):
        names = {entry["name"] for entry in spec["containers"][0]["env"]} - {"POD_IP"}
        assert {name for name in names if f'"{name}"' not in known} == set()


def test_workers_grow_with_the_age_of_what_waits(rendered: dict[str, Any]) -> None:
    documents = rendered["all"]["documents"]
    (scaler,) = of_kind(documents, "HorizontalPodAutoscaler")
    (metric,) = scaler["spec"]["metrics"]
    name = metric["external"]["metric"]["name"]
    assert f'"{name}"' in (ROOT / "triage/metrics/standing.py").read_text()
    assert name in (ROOT / "docs/kubernetes.md").read_text()
    worker = next(one for one in of_kind(documents, "Deployment") if one["metadata"]["name"].endswith("-worker"))
    assert scaler["spec"]["scaleTargetRef"]["name"] == worker["metadata"]["name"]
    assert "replicas" not in worker["spec"], "an upgrade would set back what was scaled"
    assert not of_kind(rendered["least"]["documents"], "HorizontalPodAutoscaler")


def test_nobody_reaches_a_pod_but_by_what_it_serves_and_no_pod_reaches_a_machine_s_credentials(
    rendered: dict[str, Any],
) -> None:
    policies = {
        one["metadata"]["name"]: one["spec"] for one in of_kind(rendered["least"]["documents"], "NetworkPolicy")
    }
    all_pods = policies["prod-faultline"]
    assert all_pods["ingress"] == [] and set(all_pods["policyTypes"]) == {"Ingress", "Egress"}
    blocks = [to["ipBlock"] for rule in all_pods["egress"] for to in rule.get("to", [])]
    assert all(block["except"] for block in blocks)
    assert policies["prod-faultline-web"]["ingress"] == [{"ports": [{"protocol": "TCP", "port": "http"}]}]
    narrowed = {one["metadata"]["name"]: one["spec"] for one in of_kind(rendered["all"]["documents"], "NetworkPolicy")}
    assert narrowed["prod-faultline-web"]["ingress"][0]["from"] == VALUES["all"]["networkPolicy"]["webFrom"]
    for spec in policies.values():
        chosen = spec["podSelector"]["matchLabels"].items()
        assert any(
            chosen <= one["spec"]["template"]["metadata"]["labels"].items()
            for one in of_kind(rendered["least"]["documents"], "Deployment")
        )


def test_the_migration_runs_before_anything_of_the_new_version(rendered: dict[str, Any]) -> None:
    (job,) = of_kind(rendered["least"]["documents"], "Job")
    assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade"
    used = {volume["name"] for volume in job["spec"]["template"]["spec"]["volumes"]}
    assert used == {"state", "tmp"}, "nothing else of the chart is there yet"


def test_what_may_be_read_of_the_cluster_is_what_the_documents_say(rendered: dict[str, Any]) -> None:
    (role,) = of_kind(rendered["all"]["documents"], "ClusterRole")
    told = re.search(r"\nrules:\n(.*?)\n---", (ROOT / "docs/connectors/kueue.md").read_text(), re.DOTALL)
    assert told is not None
    assert role["rules"] == yaml.safe_load(told[1])
    assert not of_kind(rendered["least"]["documents"], "ClusterRole")


def test_its_version_is_the_project_s() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == project


def each(path: Path, key: Callable[[dict[str, Any]], Any]) -> list[Any]:
    groups = yaml.safe_load(path.read_text())["groups"]
    return [key(rule) for group in groups for rule in group["rules"]]


def test_every_alert_has_a_runbook_and_every_runbook_an_alert() -> None:
    alerts = ROOT / "docs/monitoring/alerts.yml"
    text = (ROOT / "docs/monitoring.md").read_text()
    parts = dict(re.findall(r"^### (\w+)\n\n(.+?)(?=\n#|\Z)", text, re.MULTILINE | re.DOTALL))
    names = each(alerts, lambda rule: rule["alert"])
    assert set(names) == set(parts) and len(names) == len(set(names)) >= 8
    for name, place in zip(names, each(alerts, lambda rule: rule["annotations"]["runbook"]), strict=True):
        assert place == f"docs/monitoring.md#{name.lower()}"
        assert len(parts[name].split()) > 15, f"{name}: what to do"
