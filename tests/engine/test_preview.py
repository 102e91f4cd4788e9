"""What a preview says is what `up` then does: the whole program, on hosts that answer as machines would."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.changes_to_allow import Checks
from cli.preview.comment import comment
from cli.preview.plan import Plan
from cli.pulumi.deployment import Deployment
from cli.pulumi.find_engine import IN_PROCESS, Found, find_engine
from cli.pulumi.workspace import Workspace
from cli.run_events import Event
from tests.engine.conftest import needs_cli
from tests.engine.played_hosts import PROJECT, Played, play, write_config

COUNT = 4  # and one that comes later
FILES = "files of the measurement cross-site"


@dataclass
class Trial:
    """A cluster that is up, and its files. `events` are those of the last run."""

    folder: Path
    config: Path
    found: Found
    played: Played
    events: list[Event] = field(default_factory=list)

    def edit(self, change: Callable[[dict[str, Any]], None]) -> None:
        """Change the stack's config; `change` gets its sections."""
        content = yaml.safe_load(self.config.read_text())
        change(content["config"])
        self.config.write_text(yaml.safe_dump(content))

    def deployment(self) -> Deployment:
        """The stack as its config is now."""
        self.events.clear()
        workspace = Workspace(PROJECT, "large", self.config, self.folder / "state")
        return Deployment(workspace, self.found, self.events.append)

    def preview(self) -> tuple[Plan, str]:
        """What a preview comes to, and the comment."""
        deployment = self.deployment()
        made = deployment.made()
        summary = deployment.preview(made)
        assert summary.ok, summary.failures
        plan = Plan.of(self.events, made, summary)
        return plan, comment("large", plan, summary.failures, Checks(()))

    def up(self) -> dict[str, int]:
        """What an `up` did, by operation."""
        summary = self.deployment().up()
        assert summary.ok, summary.failures
        return {name: count for name, count in summary.counts.items() if count and name != "same"}

    def foretold_and_done(self) -> tuple[Plan, str]:
        """What a preview comes to; `up` has then done that and no more."""
        plan, text = self.preview()
        foretold = {name: count for name, count in plan.counts.items() if count and name != "same"}
        assert self.up() == foretold
        return plan, text


@pytest.fixture(params=[IN_PROCESS, pytest.param("cli", marks=needs_cli)])
def trial(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Trial]:
    """A cluster of four hosts at three sites, up, under either engine; a fifth host is there."""
    monkeypatch.setenv("PULUMI_BACKEND_URL", "")  # given back after the test: the driver sets it
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.delenv("PULUMI_HOME", raising=False)
    monkeypatch.delenv("PULUMI_CONFIG_PASSPHRASE", raising=False)
    monkeypatch.delenv("PULUMI_CONFIG_PASSPHRASE_FILE", raising=False)
    with play(COUNT + 1) as played:
        addresses = [("127.0.0.1", port) for port in played.ports[:COUNT]]
        config = write_config(tmp_path, addresses, played.private_key, played.host_key)
        found = Found(None, "") if request.param == IN_PROCESS else find_engine("cli")
        made = Trial(tmp_path, config, found, played)
        made.up()
        yield made


def test_a_preview_predicts_up_exactly_shows_every_changed_line_and_keeps_no_log(trial: Trial, tmp_path: Path) -> None:
    trial.edit(lambda sections: sections.update({"tailrack:slurm": {"settings": {"KillWait": 60}}}))
    plan, text = trial.preview()
    assert (plan.counts["update"], plan.counts["replace"]) == (1, 0), "slurmctld alone has another file"
    assert not [*(tmp_path / "user").rglob("logs")]
    # The CLI would otherwise have made a folder of it.
    assert all(path.is_file() for path in trial.folder.rglob("pulumi-home/logs"))
    assert trial.found.cli is None or [*trial.folder.rglob("pulumi-home/logs")]

    trial.edit(lambda sections: sections["tailrack:users"].append({"name": "grace", "uid": 6002}))
    trial.edit(lambda sections: sections["tailrack:cluster"].update(munge_generation="two"))
    plan, text = trial.foretold_and_done()
    assert plan.measured == [], "a new user is no reason to measure"
    assert "**Users:**\n\n```diff\n+ grace 6002 6002\n```" in text
    assert "**slurm.conf:**\n\n```diff\n+ KillWait=60\n```" in text, "whatever changes besides"
    assert text.count("munge key: is undone and runs again") == 1
    assert "measures" not in text.partition("**May run again**")[0]
    assert "- measure cross-site" in text.partition("**May run again**")[2]
    assert not [*trial.folder.rglob("last-answers*")], "what machines said is for the preview alone"

    new = f"gamma1,127.0.0.1,{trial.played.ports[COUNT]},{trial.played.host_key}\n"
    hosts = trial.folder / "gamma.csv"
    hosts.write_text((before := hosts.read_text()) + new)
    plan, text = trial.foretold_and_done()
    assert "**Machines:** `gamma1` added." in text
    assert "- `gamma` for the first time, over `gamma0`, `gamma1`\n" in text
    assert "- `cross-site` again, over `alpha1`, `beta0`, `gamma0`, `gamma1` (changed: its nodes)\n" in text

    hosts.write_text(before)
    plan, text = trial.preview()
    assert "**Machines:** `gamma1` removed." in text
    assert "- `cross-site` again, over `alpha1`, `beta0`, `gamma0` (changed: its nodes)\n" in text
    assert "# plan" in text.partition(FILES)[2], "the plan of a measurement is folded away"
    assert "#SBATCH" not in text.partition(FILES)[0]
