"""`.github/comment.sh` with a fake `gh` (a stub of this test): one comment a stack, and nobody else's is touched."""

import subprocess
from pathlib import Path

import pytest

from cli.preview.comment import MARK

SCRIPT = Path(__file__).parents[3] / ".github" / "comment.sh"
# Answers a listing from the file `comments`, as the jq filter would; notes every other call.
FAKE = """#!/bin/bash
# A fake of a test, not GitHub's gh.
case " $* " in
    *" --paginate "*) cat comments ;;
    *) echo "$*" >>calls ;;
esac
"""


@pytest.mark.parametrize(
    ("there", "expected"),
    [
        ("", "--silent -X POST repos/o/r/issues/7/comments -F body=@new"),
        (f"11\t{MARK.format(stack='dev')}\n", "--silent -X POST repos/o/r/issues/7/comments -F body=@new"),
        (
            f"11\t{MARK.format(stack='dev')}\n12\t{MARK.format(stack='prod')}\n13\t{MARK.format(stack='prod')}\n",
            "--silent -X PATCH repos/o/r/issues/comments/12 -F body=@new",
        ),
    ],
)
def test_a_stacks_old_comment_is_replaced_and_no_other(tmp_path: Path, there: str, expected: str) -> None:
    (tmp_path / "gh").write_text(FAKE)
    (tmp_path / "gh").chmod(0o755)
    (tmp_path / "comments").write_text(there)
    (tmp_path / "new").write_text(MARK.format(stack="prod") + "\n\ntext\n")
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "GITHUB_REPOSITORY": "o/r", "NUMBER": "7", "GH_TOKEN": "t"}
    subprocess.run([SCRIPT, "new"], cwd=tmp_path, env=environment, check=True)
    assert (tmp_path / "calls").read_text() == f"api {expected}\n"


def test_a_preview_without_a_comment_leaves_the_old_one(tmp_path: Path) -> None:
    done = subprocess.run([SCRIPT, "gone"], cwd=tmp_path, env={"PATH": "/usr/bin:/bin"}, check=False)
    assert done.returncode == 0
