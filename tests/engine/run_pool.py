"""Run `up` of stack `burst` as `make elastic` does, and write the failures by node.

Run as `python -m tests.engine.run_pool FOLDER ROOT ENGINE rent --result FILE`.
"""

import json
import sys
from pathlib import Path

from cli.elastic.run import by_node
from cli.pulumi.deployment import Deployment
from cli.pulumi.find_engine import IN_PROCESS, Found, find_engine
from cli.pulumi.workspace import Workspace

NODES = ("g1", "g2")


def main() -> None:
    """Run it."""
    folder, root, engine, _, _, result = sys.argv[1:]
    found = Found(None, "") if engine == IN_PROCESS else find_engine(engine)
    workspace = Workspace(Path(folder), "burst", Path(folder) / "Pulumi.burst.yaml", Path(root))
    summary = Deployment(workspace, found, lambda event: None).up()
    Path(result).write_text(json.dumps(by_node(summary.failures, NODES)), encoding="utf-8")


if __name__ == "__main__":
    main()
