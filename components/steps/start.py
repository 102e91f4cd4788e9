"""start.sh, the script that starts a step on a machine."""

from __future__ import annotations

import hashlib
from pathlib import Path

# Its name on machines. A change of the script is a new name: a step that does not run again needs the old one.
START_TEXT = Path(__file__).with_name("start.sh").read_text(encoding="utf-8")
START_DIGEST = hashlib.sha256(START_TEXT.encode()).hexdigest()
START = f"start-{START_DIGEST[:8]}.sh"

# Its functions that end a step: `explain_status` and `print_answer`.
END_OF_STEP = START_TEXT[START_TEXT.index("explain_status() {") :].rpartition("\nstart ")[0]
