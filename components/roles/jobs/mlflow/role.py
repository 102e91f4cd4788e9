"""MLflow's tracking server on the head node, with a login, artifacts on the share, and its address in every job.

Role fabric's task-prolog sets MLflow's address in jobs. It follows a link on the node (/etc/tailrack/mlflow-uri) to a
file on the share, which exists while MLflow answers.

SQLite, because MLflow does not test MariaDB and a few people's batches need one writer. The server writes artifacts, so
no client has write access to every folder. Its packages are a list of wheels, because MLflow's image or all its
dependencies add 500 MB that a server never loads.
"""

from components.node.systemd import UNITS
from components.roles.cluster_settings import ClusterSettings
from components.roles.jobs.mlflow.host import ARTIFACTS, DUMP, SETTINGS, START, URI_FILE
from components.roles.jobs.mlflow.install import ACCOUNT, ACCOUNTS, PROGRAM, UNIT
from components.roles.jobs.mlflow.settings import Mlflow
from components.roles.program import python_launcher, version
from components.roles.role import Holder, Role, folder_of, template

# MLflow requires at least 12 characters; 24 random bytes give 32.
PASSWORD_BYTES = 24


def role(settings: ClusterSettings) -> Role:
    """Return the role, also without mlflow in the config: the server's files then go."""
    config = settings.mlflow
    mlflow = config or Mlflow()
    requirements = (folder_of("mlflow") / "lock" / "requirements.txt").read_text(encoding="utf-8") if config else ""
    return Role(
        "mlflow",
        # Last, so that a failure of MLflow does not stop other services.
        after=("users", "share", "slurm", "monitoring", "backup"),
        values={
            "enabled": config is not None,
            "port": mlflow.port,
            "index": mlflow.index,
            **({} if config else {"admin_password": ""}),
        },
        packages={"services": ("python3-venv",)} if config else {},
        only_where={} if config else {"services": (ARTIFACTS,), "compute": ()},
        made={"services": (f"{UNITS}/{UNIT}", SETTINGS, PROGRAM, START, ACCOUNTS, DUMP), "compute": (URI_FILE,)}
        if config
        else {},
        texts={
            "requirements": requirements,
            "unit": template("mlflow", UNIT),
            "login": template("mlflow", "basic_auth.ini"),
            "start": python_launcher("mlflow-start"),
            "start_version": version("mlflow-start"),
            "accounts": python_launcher("mlflow-accounts"),
            "dump": template("mlflow", "dump"),
        },
        ports=(str(config.port),) if config else (),
        holders={str(config.port): Holder(ACCOUNT, head_alone=True)} if config else {},
        # Jobs on every member connect to it.
        serves=(str(config.port),) if config else (),
        state=("/var/lib/tailrack/mlflow",) if config else (),
    )
