"""Runs a project's `__main__.py`, unchanged, in Pulumi's own Python runtime, in this process."""

from __future__ import annotations

import asyncio
import contextvars
import importlib
import json
import logging
import os
import runpy
import sys
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pulumi
from pulumi.runtime import Settings, configure, run_in_stack, set_all_config

from engine.config import Config
from engine.monitor import Log, Monitor


def run_program(
    folder: Path, stack: str, config: Config, monitor: Monitor, log: Log, *, dry_run: bool, parallel: int
) -> str:
    """Run the program to its end, with every resource registered. Returns why it failed, or nothing."""

    def run() -> None:
        set_all_config(config.values, config.secret_keys)
        # The types say address (str) or anything; the runtime takes objects, as its own mocks do.
        services: dict[str, Any] = {"monitor": monitor, "engine": log}
        configure(
            Settings(
                config.project,
                stack,
                **services,
                parallel=parallel,
                dry_run=dry_run,
                organization="organization",
                root_directory=str(folder),
            )
        )
        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
        # A registration holds a thread until its step is done; steps themselves wait for a slot.
        with ThreadPoolExecutor(parallel * 4) as pool:
            loop.set_default_executor(pool)
            try:
                loop.run_until_complete(run_in_stack(lambda: _main(folder)))
            finally:
                for task in asyncio.all_tasks(loop):
                    task.cancel()
                loop.run_until_complete(asyncio.sleep(0))
        loop.close()

    with _surroundings(folder, config):
        try:
            # An empty context: the runtime keeps all its state in context variables.
            contextvars.Context().run(run)
        except pulumi.RunError as error:
            return str(error)
        except (Exception, SystemExit):  # noqa: BLE001 - whatever the program raises is its failure
            trace = "".join(traceback.format_exception(*_own_frames(folder)))
            return f"Program failed with an unhandled exception:\n{trace}"
        finally:
            asyncio.set_event_loop(None)
    return ""


def _main(folder: Path) -> None:
    runpy.run_path(str(folder), run_name="__main__")


def _own_frames(folder: Path) -> tuple[Any, Any, Any]:
    """Return the current exception, its trace cut to begin in the program where it passes through it."""
    kind, error, trace = sys.exc_info()
    first = trace
    while first and Path(first.tb_frame.f_code.co_filename) != folder / "__main__.py":
        first = first.tb_next
    return kind, error, first or trace


@contextmanager
def _surroundings(folder: Path, config: Config) -> Iterator[None]:
    """Give the program what the CLI's own process would: its folder, fresh modules, the config in PULUMI_CONFIG."""
    argv, path, cwd = sys.argv, sys.path, Path.cwd()
    modules = {name: module for name, module in sys.modules.items() if _belongs_to(module, folder)}
    for name in modules:
        del sys.modules[name]
    importlib.invalidate_caches()
    sys.argv, sys.path = [str(folder)], [str(folder), *sys.path]
    os.chdir(folder)
    os.environ["PULUMI_CONFIG"] = json.dumps(config.values)
    os.environ["PULUMI_CONFIG_SECRET_KEYS"] = json.dumps(config.secret_keys)
    # A failed program leaves futures nobody looked at, and asyncio would complain of each.
    quiet = logging.getLogger("asyncio")
    level = quiet.level
    quiet.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        quiet.setLevel(level)
        sys.argv, sys.path = argv, path
        os.chdir(cwd)
        for key in ("PULUMI_CONFIG", "PULUMI_CONFIG_SECRET_KEYS"):
            del os.environ[key]
        for name in [name for name, module in sys.modules.items() if _belongs_to(module, folder)]:
            del sys.modules[name]
        sys.modules |= modules


def _belongs_to(module: ModuleType, folder: Path) -> bool:
    path = Path(getattr(module, "__file__", None) or "/")
    # The engine itself, and whoever called it: runpy puts `__main__` aside and back on its own.
    own = module.__name__.partition(".")[0] == __package__ or module is sys.modules.get("__main__")
    return path.is_relative_to(folder) and not path.is_relative_to(sys.prefix) and not own
