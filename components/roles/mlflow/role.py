"""MLflow's tracking server on the head node: with a log-in, artifacts on the share, its address in every job.

Role fabric's task-prolog tells jobs where MLflow answers. It follows a link on the node (/etc/tailrack/mlflow-uri) to a
file of the share, which is there while MLflow answers (docs/decisions/0019).
"""

from __future__ import annotations

from components.roles.cluster_settings import ClusterSettings
from components.roles.mlflow.settings import Mlflow
from components.roles.python_program import python_program
from components.roles.role import FOLDER, Holder, Role, template

UNIT, ACCOUNT = "tailrack-mlflow.service", "tailrack-mlflow"
ADMIN = "admin"
# MLflow takes none that is shorter than twelve letters; 24 random bytes are 32.
PASSWORD_BYTES = 24


def role(settings: ClusterSettings) -> Role:
    """Present where nobody asks for it too: what it has made goes then."""
    asked = settings.mlflow
    mlflow = asked or Mlflow()
    requirements = (FOLDER / "mlflow" / "lock" / "requirements.txt").read_text(encoding="utf-8") if asked else ""
    return Role(
        "mlflow",
        # Last: what keeps it away keeps no other service away.
        after=("users", "nfs_exports", "slurm", "monitoring", "backup"),
        values={
            "MLFLOW_ENABLED": asked is not None,
            "MLFLOW_PORT": mlflow.port,
            "MLFLOW_INDEX": mlflow.index,
            **({} if asked else {"MLFLOW_ADMIN_PASSWORD": ""}),
        },
        packages={"services": ("python3-venv", "curl")} if asked else {},
        texts={
            "MLFLOW_REQUIREMENTS": requirements,
            "MLFLOW_UNIT": template("mlflow", UNIT),
            "MLFLOW_LOGIN": template("mlflow", "basic_auth.ini"),
            "MLFLOW_START": python_program("components.roles.mlflow.start", "sys.argv[1:]"),
            "MLFLOW_ACCOUNTS": python_program("components.roles.mlflow.accounts", "sys.argv[1:]"),
            "MLFLOW_DUMP": template("mlflow", "dump"),
        },
        ports=(str(asked.port),) if asked else (),
        holders={str(asked.port): Holder(ACCOUNT, head_alone=True)} if asked else {},
        # Jobs on every member.
        serves=(str(asked.port),) if asked else (),
        state=("/var/lib/tailrack/mlflow",) if asked else (),
    )
