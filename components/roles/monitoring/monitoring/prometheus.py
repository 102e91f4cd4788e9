"""Run Prometheus on the head node."""

from dataclasses import dataclass
from functools import partial

from components.node import files, systemd
from components.node.daemons import Daemon, record_used, run_daemon, silence_daemon, used_as_they_are
from components.node.failure import Failure
from components.node.files import File
from components.node.log import STATE_DIR
from components.node.run import attempt, run
from components.node.step.step import Step
from components.roles.monitoring.monitoring.alerting import LOGIN as ALERTMANAGER_LOGIN
from components.roles.monitoring.monitoring.alerting import USER, AlertmanagerValues, Login
from components.roles.network.firewall.ports import hold_ports

UNIT = "tailrack-prometheus.service"
_FOLDER = "/etc/tailrack/prometheus"
LOGIN = Login(_FOLDER)
# On the head node. Prometheus watches this folder for changes.
TARGETS = f"{STATE_DIR}/monitoring/targets"
# Settings of the head node's collectors.
SETTINGS = "/etc/tailrack/monitoring.json"


@dataclass(frozen=True)
class ScrapeJob:
    """A port to scrape on all members."""

    job: str
    port: int


@dataclass(frozen=True)
class PrometheusValues(AlertmanagerValues):
    """The settings of Prometheus, and the texts of its unit, its configuration and its rules.

    monitoring_cluster   the cluster's name, a label of all alerts
    monitoring_accepted  the accepted series, JSON (accepted_series.py)
    """

    node_name: str
    monitoring_cluster: str
    monitoring_retention_days: int
    monitoring_retention_gb: int
    monitoring_unit: str
    monitoring_config: str
    monitoring_rules: str
    monitoring_accepted: str
    monitoring_scrape: list[ScrapeJob]


def start_prometheus(step: Step, values: PrometheusValues) -> None:
    """Run Prometheus with the config's settings."""
    silence_daemon("prometheus", UNIT)
    unit, environment = f"{systemd.UNITS}/{UNIT}", f"{_FOLDER}/environment"
    rules, config = f"{_FOLDER}/rules.yml", f"{_FOLDER}/prometheus.yml"
    alerting = bool(values.monitoring_alertmanager)
    credentials = f"LoadCredential=alertmanager:{ALERTMANAGER_LOGIN.password}" if alerting else ""
    settings = (
        f"ADDRESS={values.head_address}\nPORT={values.monitoring_port}\nDAYS={values.monitoring_retention_days}\n"
        f"GIB={values.monitoring_retention_gb}"
    )
    LOGIN.ensure(step)
    step.declare(
        File(unit, values.monitoring_unit.replace("@CREDENTIALS@", credentials)),
        File(environment, settings),
        File(rules, values.monitoring_rules.replace("@HEAD@", values.node_name)),
        File(config, _config(values)),
    )
    _check_config(step, config)
    read_at_start = (unit, environment, LOGIN.web, *([ALERTMANAGER_LOGIN.password] if alerting else []))
    daemon = Daemon(
        UNIT,
        values.head_address,
        values.monitoring_port,
        "/-/ready",
        "monitoring.port",
        read_at_start,
        login=LOGIN.text(),
    )
    run_daemon(step, daemon, partial(hold_ports, step, values))
    # A reload, because collection continues during it.
    if not used_as_they_are("prometheus-rules", (rules, config)):
        run("systemctl", "reload", UNIT)
        record_used("prometheus-rules", (rules, config))


def _config(values: PrometheusValues) -> str:
    scrape = [scrape_job(job, values.monitoring_accepted) for job in values.monitoring_scrape]
    text = "\n".join([values.monitoring_config, *scrape])
    for name, word in (
        ("HEAD", values.node_name),
        ("CLUSTER", values.monitoring_cluster),
        ("ADDRESS", values.head_address),
        ("PORT", str(values.monitoring_port)),
    ):
        text = text.replace(f"@{name}@", word)
    return f"{text}\n{_ALERTMANAGER_JOB.format(values=values)}" if values.monitoring_alertmanager else text


def scrape_job(job: ScrapeJob, accepted: str, targets: str = TARGETS) -> str:
    """Return the part of the configuration that scrapes a port of all members.

    accepted   the accepted series, JSON
    targets    the folder with the members' target files (host.py)
    """
    return _SCRAPE_JOB.format(job=job, accepted=accepted, targets=targets)


# Root of a node controls the answer, so it is limited in size (after
# decompression), cannot redirect, cannot set times, and cannot claim to be another machine (accepted_series.py).
_SCRAPE_JOB = """\
  - job_name: {job.job}
    honor_labels: false
    honor_timestamps: false
    follow_redirects: false
    body_size_limit: 4MB
    sample_limit: 20000
    label_limit: 16
    label_name_length_limit: 64
    label_value_length_limit: 128
    file_sd_configs:
      - files: [{targets}/*.json]
    relabel_configs:
      - source_labels: [__address__]
        target_label: __address__
        replacement: $1:{job.port}
    metric_relabel_configs: {accepted}"""

_LOGIN = f"basic_auth: {{{{username: {USER}, password_file: /run/credentials/{UNIT}/alertmanager}}}}"
# To send alerts to Alertmanager and to scrape it.
_ALERTMANAGER_JOB = f"""\
  - job_name: alertmanager
    {_LOGIN}
    static_configs:
      - targets: ["127.0.0.1:{{values.monitoring_alertmanager_port}}"]
        labels: {{{{instance: "{{values.node_name}}"}}}}

alerting:
  alertmanagers:
    - {_LOGIN}
      static_configs:
        - targets: ["127.0.0.1:{{values.monitoring_alertmanager_port}}"]"""


def _check_config(step: Step, path: str) -> None:
    ended = attempt("promtool", "check", "config", files.on_disk(path), keep_errors=True)
    if ended.ok:
        return
    lines = [line for line in (ended.output + ended.errors).splitlines() if line.strip(" ")]
    raise Failure(
        f"this release of Prometheus does not accept its configuration: {(lines or [''])[-1]}",
        f"see 'promtool check config {path}' on {step.host}",
    )
