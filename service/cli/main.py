"""The command `instance-selector`: its groups of commands, and how an error is printed."""

import gc
import logging
import os
import sys
from collections.abc import Sequence
from importlib import import_module

import click

from service.domain.errors import Unusable

MODULES = {
    "serve": "serve",
    "seed": "database",
    "migrate": "database",
    "check": "database",
    "keys": "keys",
    "recommend": "questions",
    "estimate": "questions",
    "instances": "questions",
    "feeds": "feeds",
    "offers": "feeds",
    "accuracy": "development",
    "calibrate": "development",
    "openapi": "development",
}
"""The module of each command."""


class Commands(click.Group):
    """Imports the module of a command when the command runs, so that `serve` does not load the modules of others."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Returns all commands in the order of the help."""
        return list(MODULES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Returns the command of this name, or None when there is none."""
        if cmd_name not in MODULES:
            return None
        command: click.Command = getattr(import_module(f"service.cli.{MODULES[cmd_name]}"), cmd_name)
        if cmd_name != "serve":  # see `DrainingServer.startup`
            gc.enable()
        return command


@click.command("instance-selector", cls=Commands, help="Find the machine that should run a deep-learning job.")
def instance_selector() -> None:
    """Does nothing by itself; each command does its own work."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command. Returns its exit code: 0 if it succeeds, 1 if it fails, and 2 if the arguments are wrong."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s")
    try:
        code = instance_selector.main(arguments, "instance-selector", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort:
        return 130  # as shells report a program that Ctrl-C has ended
    except Unusable as error:
        print(error, file=sys.stderr)
        return 1
    except BrokenPipeError:  # the reader, such as head, has closed the pipe
        # Python flushes the output at its end, and would print an error about the closed pipe.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
