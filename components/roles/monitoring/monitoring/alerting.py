"""Run Alertmanager on the head node, if the config has receivers.

It listens on 127.0.0.1. It and Prometheus require a log-in. Without it, any user of the head node could silence alerts,
send their own, and read the metrics of all users' jobs. Root reads it in /etc/tailrack/alertmanager/login and
/etc/tailrack/prometheus/login.
"""

import re
import secrets
from dataclasses import dataclass
from functools import partial

from components.node import files, systemd
from components.node.daemons import Daemon, run_daemon, silence_daemon
from components.node.failure import Failure
from components.node.files import File
from components.node.log import printable
from components.node.run import attempt, run
from components.node.step.step import Step
from components.roles.network.firewall.ports import HeldPorts, hold_ports

USER = "prometheus"
UNIT = "tailrack-alertmanager.service"


@dataclass(frozen=True)
class Login:
    """The files of a log-in in a folder of root's.

    password  the password, for programs
    web       its hash, in the form of Prometheus' option --web.config.file
    person    for people: `curl -K FILE`
    """

    folder: str

    @property
    def password(self) -> str:
        return f"{self.folder}/password"

    @property
    def web(self) -> str:
        return f"{self.folder}/web.yml"

    @property
    def person(self) -> str:
        return f"{self.folder}/login"

    def text(self) -> str:
        """Return `user:password`."""
        return f"{USER}:{self._password()}"

    def ensure(self, step: Step) -> None:
        """Create the password and its hash, unless they are there."""
        step.declare(self.password, self.web, self.person)
        password = self._password()
        if not re.fullmatch("[0-9a-f]{64}", password):
            password = secrets.token_hex(32)
            files.write(self.password, password, 0o600)
        found = re.search(rf'^  {USER}: "(.*)"$', files.read(self.web) or "", re.MULTILINE)
        if not found or _hash(password, found[1]) != found[1]:
            digest = _hash(password, f"$2b$05${secrets.token_hex(11)}")
            files.write(self.web, f'basic_auth_users:\n  {USER}: "{digest}"', 0o600)
        files.write(self.person, f'user = "{USER}:{password}"', 0o600)

    def _password(self) -> str:
        return (files.read(self.password) or "").rstrip("\n")


# Only root can access it.
_FOLDER = "/etc/tailrack/alertmanager"
LOGIN = Login(_FOLDER)


@dataclass(frozen=True)
class AlertmanagerValues(HeldPorts):
    """Alertmanager's configuration (empty without receivers), port on 127.0.0.1 and unit.

    monitoring_receivers           secret: `file text`, one a line
    monitoring_port, head_address  Prometheus' port and address for people
    """

    monitoring_alertmanager: str
    monitoring_alertmanager_port: int
    monitoring_alertmanager_unit: str
    monitoring_receivers: str
    monitoring_port: int
    head_address: str


def start_alertmanager(step: Step, values: AlertmanagerValues) -> None:
    """Run Alertmanager with the receivers of the config."""
    silence_daemon("prometheus-alertmanager", UNIT)
    lines = (line.partition(" ") for line in values.monitoring_receivers.split("\n"))
    receivers = {name: text for name, _, text in lines if name}
    unit, environment, config = f"{systemd.UNITS}/{UNIT}", f"{_FOLDER}/environment", f"{_FOLDER}/alertmanager.yml"
    credentials = "\n".join(f"LoadCredential={name}:{_FOLDER}/{name}" for name in receivers)
    step.declare(
        *(File(f"{_FOLDER}/{name}", text, 0o600) for name, text in receivers.items()),
        File(unit, values.monitoring_alertmanager_unit.replace("@CREDENTIALS@", credentials)),
        File(
            environment,
            f"PORT={values.monitoring_alertmanager_port}\nPROMETHEUS={values.head_address}:{values.monitoring_port}",
            0o600,
        ),
        File(config, values.monitoring_alertmanager, 0o600),
    )
    _check_config(config)
    daemon = Daemon(
        UNIT,
        "127.0.0.1",
        values.monitoring_alertmanager_port,
        "/-/ready",
        "monitoring.alertmanager_port",
        (unit, environment, config, LOGIN.web, *(f"{_FOLDER}/{name}" for name in receivers)),
        login=LOGIN.text(),
    )
    run_daemon(step, daemon, partial(hold_ports, step, values))


def _check_config(path: str) -> None:
    ended = attempt("amtool", "check-config", files.on_disk(path), keep_errors=True)
    if ended.ok:
        return
    lines = (ended.output + ended.errors).splitlines()
    words = " ".join(line for line in lines if line.strip() and not line.startswith(("Checking", "amtool:"))).split()
    raise Failure(
        "this distribution's Alertmanager does not accept tailrack:monitoring.receivers: "
        f"{printable(' '.join(words), 300)}",
        "a webhook needs Alertmanager 0.26 or newer (Debian 13) on the head node; slack and mail also work with Debian "
        "12's",
    )


def _hash(password: str, setting: str) -> str:
    """Return crypt(3) of a password. `setting`: also an earlier hash. Python 3.13 has no module for it."""
    program = "chomp(my ($setting, $word) = <STDIN>); print crypt($word, $setting)"
    return run("perl", "-e", program, stdin=f"{setting}\n{password}\n")
