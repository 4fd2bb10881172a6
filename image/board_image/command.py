"""What build and flash share as commands: one line for an error, and its exit code."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from edgellm.errors import ConfigError, EdgeLLMError

EXIT_USAGE = 64
EXIT_INTERRUPTED = 130


class UsageError(ConfigError):
    code = "usage"
    exit_code = EXIT_USAGE


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} — see {self.prog} --help")


def run_command(parser: Parser, run: Callable[[argparse.Namespace], int], arguments: Sequence[str]) -> int:
    try:
        return run(parser.parse_args(arguments))
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except EdgeLLMError as error:
        sys.stderr.write(f"{parser.prog}: {' '.join(str(error).split())}\n")
        return error.exit_code
