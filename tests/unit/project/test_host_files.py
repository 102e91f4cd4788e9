"""Root's files on hosts are opened by components/node/files.py and its neighbours alone."""

import ast
from pathlib import Path

PROJECT = Path(__file__).parents[3]
NODE = PROJECT / "components/node"
# Each of these is about opening files, runs before there is anything to open, or reads the program's own files.
# kernel.py refuses paths outside KERNEL.
ALLOWED = {NODE / f"{name}.py" for name in ("files", "folders", "install", "kernel", "pack", "safe_path")}
FUNCTIONS = {
    "os": {
        *("open", "rename", "replace", "remove", "unlink", "mkdir", "makedirs", "rmdir", "link", "symlink", "truncate"),
        *("chown", "chmod", "lchown", "mkfifo", "mknod", "removedirs", "listdir", "scandir", "readlink"),
    },
    "shutil": {"copy", "copy2", "copyfile", "copytree", "move", "rmtree", "chown"},
}
METHODS = {
    *("read_text", "write_text", "read_bytes", "write_bytes", "unlink", "mkdir", "rmdir", "touch", "symlink_to"),
    *("hardlink_to", "iterdir", "glob", "rglob", "readlink"),
}
# Files of the kernel and devices are no other account's.
KERNEL = ("/proc/", "/sys/", "/dev/")


def host_modules() -> list[Path]:
    """The modules of steps on hosts: components/node, and the phases of roles and what they import of their role."""
    phases = [
        path
        for path in (PROJECT / "components").rglob("*.py")
        if "\nfrom components.node.step.step import" in path.read_text(encoding="utf-8")
    ]
    return sorted({*NODE.rglob("*.py"), *phases} - ALLOWED)


def opened(path: Path) -> list[str]:
    """Every call of a module that opens or changes a file in another way."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call):
            continue
        if any(isinstance(part, ast.Constant) and str(part.value).startswith(KERNEL) for part in ast.walk(node)):
            continue
        function = node.func
        if isinstance(function, ast.Name) and function.id == "open":
            found.append(f"{node.lineno}: open")
        elif isinstance(function, ast.Attribute):
            owner = function.value.id if isinstance(function.value, ast.Name) else ""
            devnull = "devnull" in ast.unparse(node)
            if (function.attr in FUNCTIONS.get(owner, ()) and not devnull) or function.attr in METHODS:
                found.append(f"{node.lineno}: {ast.unparse(function)}")
    return found


def test_step_modules_open_files_only_through_the_safe_module() -> None:
    modules = host_modules()
    assert len(modules) > 50
    assert {str(path.relative_to(PROJECT)): calls for path in modules if (calls := opened(path))} == {}
