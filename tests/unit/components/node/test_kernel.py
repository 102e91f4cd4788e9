"""Files of the kernel."""

from __future__ import annotations

import pytest

from components.node import kernel
from tests.unit.shell import Shell


def test_files_of_the_kernel_are_read_and_written_and_no_error_is_raised(shell: Shell) -> None:
    shell.write("proc/sys/net/setting", "1\n")
    with shell.here():
        assert kernel.read("/proc/sys/net/setting") == "1\n"
        assert kernel.write("/proc/sys/net/setting", "2\n")
        assert kernel.read("/proc/sys/net/setting") == "2\n"
        assert kernel.names_in("/proc/sys/net") == ["setting"]
        assert kernel.exists("/proc/sys/net/setting")
        assert (kernel.read("/sys/none"), kernel.names_in("/sys/none"), kernel.exists("/sys/none")) == ("", [], False)
        assert not kernel.write("/sys/none/setting", "1\n")


@pytest.mark.parametrize("path", ["/etc/passwd", "/procedures/x", "proc/x"])
def test_other_files_are_refused(path: str) -> None:
    with pytest.raises(ValueError, match="is no file of the kernel"):
        kernel.read(path)
