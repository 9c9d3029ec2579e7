"""A real Prometheus scrapes a real daemon, and can do with it what `contrib/` has for it."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from supervisord_llm.telemetry.metric_list import MetricList
from tests.contrib.test_grafana import expressions, filled_in
from tests.daemon.running import Running, running, until
from tests.harness import QUICK, SECONDS, write_config
from tests.prometheus import needs

CONTRIB = Path(__file__).parents[2] / "contrib" / "prometheus"
PROBES = '[[listen]]\naddress = "tcp:127.0.0.1:0"\nserve = ["probe"]\n'


class Prometheus:
    """A Prometheus that scrapes every second."""

    def __init__(self, address: str) -> None:
        self._http = httpx.Client(base_url=f"http://{address}", timeout=SECONDS)

    def get(self, path: str, **query: str) -> Any:
        """What its API answers."""
        reply = self._http.get(f"/api/v1/{path}", params=query).json()
        assert "success" == reply["status"], reply
        return reply["data"]

    def values(self, expression: str) -> list[float]:
        """The values of an expression now."""
        return [float(each["value"][1]) for each in self.get("query", query=expression)["result"]]

    def close(self) -> None:
        """Ask no more."""
        self._http.close()


@contextmanager
def prometheus(folder: Path, target: str) -> Iterator[Prometheus]:
    """Run Prometheus with the configuration of `contrib/`, for this target and more often."""
    text = (CONTRIB / "prometheus.yml").read_text(encoding="utf-8")
    assert "127.0.0.1:8001" in text
    text = text.replace('["127.0.0.1:8001"]', f'["{target}"]').replace("15s", "1s")
    (folder / "prometheus.yml").write_text(text, encoding="utf-8")
    (folder / "alerts.yml").write_bytes((CONTRIB / "alerts.yml").read_bytes())
    log = folder / "prometheus.log"
    argv = [
        "prometheus",
        f"--config.file={folder}/prometheus.yml",
        f"--storage.tsdb.path={folder}/data",
        "--web.listen-address=127.0.0.1:0",
    ]
    with log.open("wb") as output:
        process = subprocess.Popen(argv, stdout=output, stderr=output)
    try:
        until(lambda: "ready to receive" in log.read_text(), log.read_text)
        [address] = re.findall(r'msg="Listening on" address=(\S+)', log.read_text())
        made = Prometheus(address)
        try:
            yield made
        finally:
            made.close()
    finally:
        process.terminate()
        process.wait(SECONDS)


def generate(daemon: Running, prompt: str) -> None:
    """Send a prompt and read to the end."""
    body = {"pool": "sim", "prompt": prompt}
    assert 200 == daemon.client.post("/api/v1/generate", json=body).status_code


@needs("prometheus")
def test_prometheus_scrapes_the_daemon(tmp_path: Path) -> None:
    """Every sample arrives, with the types; the alerts and the dashboard's panels can be asked."""
    config = write_config(tmp_path, workers=2, settings=QUICK)
    config.write_text(config.read_text().replace("[pool.sim]", f"{PROBES}[pool.sim]"))
    with running(tmp_path, config) as daemon:
        listening = daemon.events("daemon.listening")
        [target] = [
            str(event["address"]).removeprefix("tcp:")
            for event in listening
            if str(event["address"]).startswith("tcp:")
        ]
        generate(daemon, "x sim.tokens=5")
        generate(daemon, "x sim.exit=3 sim.at=2")
        daemon.wait("worker.ready", 3)
        with prometheus(tmp_path, target) as server:
            until(lambda: server.values("up") == [1.0], "a scrape")
            told = httpx.get(f"http://{target}/metrics").text
            samples = [line for line in told.splitlines() if not line.startswith("#")]
            scraped = server.values("scrape_samples_post_metric_relabeling")
            assert [len(samples)] == scraped

            for expression, expected in {
                'supervisord_llm_requests_total{outcome="completed"}': [1],
                'supervisord_llm_requests_total{outcome="failed"}': [1],
                'supervisord_llm_worker_restarts_total{reason="unexpected_exit"}': [1],
                'supervisord_llm_workers{state="ready"}': [2],
                "supervisord_llm_request_seconds_count": [2],
                "count(supervisord_llm_worker_resident_bytes > 0)": [2],
            }.items():
                assert expected == server.values(expression), expression
            types = server.get("targets/metadata")
            assert {series.name: series.kind for series in MetricList().all()} == {
                each["metric"]: each["type"]
                for each in types
                if each["metric"].startswith("supervisord_llm_")
            }
            for expression in expressions():
                server.get("query", query=filled_in(expression))
            [group] = server.get("rules")["groups"]
            assert {"inactive", "pending"} >= {rule["state"] for rule in group["rules"]}
            assert not [rule for rule in group["rules"] if rule.get("lastError")]
