"""The scripts of examples/training, with a fake srun that runs each task once."""

import subprocess
from pathlib import Path

SCRIPT = Path("examples/training/train_scratch.sh").resolve()
FAKES = {
    "srun": '#!/bin/bash\nwhile [[ $1 == --* ]]; do shift; done\nexec "$@"\n',
    "trainer": "#!/bin/bash\necho trains\n",
    "sleep": "#!/bin/bash\nexit 1\n",
    "rsync": "#!/bin/bash\n",
}


def test_training_does_not_begin_without_a_folder_for_checkpoints_on_the_nodes_disk(tmp_path: Path) -> None:
    for name, text in FAKES.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    variables = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_NNODES": "1", "PYTHON": "trainer"}
    ended, command = [], ["bash", str(SCRIPT), "data", str(tmp_path / "run")]
    for scratch in ("scratch", "srun"):
        environment = {**variables, "TMPDIR": str(tmp_path / scratch)}
        end = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
        ended.append((end.returncode, end.stdout))
    assert ended == [(0, "trains\n"), (1, "")]
