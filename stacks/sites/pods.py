"""Config keys of sites whose machines are pods: containers without systemd, on hosts of strangers."""

from typing import Any

from components.settings.section import yes_no


def risk_key(addition: str = "") -> Any:
    """Return the key that accepts the risk."""
    return yes_no(
        "true accepts that root of the hosts on which the pods run has the cluster's munge key, with which it can act "
        f"as any user of the cluster ([security.md](security.md#pods)){addition}",
        False,
    )


def stage_key(of: str = "") -> Any:
    """Return the key that stages every job."""
    return yes_no(
        f"{of}bring the folder of every job there and its results back ([pods](using.md#pods)), as with "
        "`--comment=stage`; jobs with another comment, such as `nostage`, are left out",
        False,
    )
