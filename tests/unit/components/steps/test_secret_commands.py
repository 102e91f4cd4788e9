"""The commands that make secrets, which no version may change."""

from components.steps.label import StepLabel
from tests.unit.configs import HOST_KEY, LAB, PRIVATE_KEY, RawConfig
from tests.unit.recorded import Build

BACKUP: RawConfig = {"target": "sftp:keeper@192.0.2.9:/srv/backup", "private_key": PRIVATE_KEY, "host_key": HOST_KEY}
GRAFANA: RawConfig = {"source": "https://dl.grafana.example/grafana.tar.gz", "sha256": "0" * 64}


def test_a_secrets_command_stays_as_it_was(build: Build) -> None:
    """Another command, its label included, would run and make another secret: no one could read the old backups."""
    secrets: tuple[tuple[RawConfig, str, str, int], ...] = (
        ({}, "munge-key", "munge key", 96),
        ({"backup": BACKUP}, "backup-password", "password of the backups", 33),
        ({"monitoring": {"grafana": GRAFANA}}, "grafana-password", "password of Grafana's admin", 24),
        ({"mlflow": {}}, "mlflow-password", "password of MLflow's administrator", 24),
    )
    for sections, name, words, count in secrets:
        command = StepLabel(name, "", words).on(f"head -c {count} /dev/urandom | base64 -w 0")
        assert build({**LAB, **sections}, secret=[*sections])[name].inputs["create"] == command
