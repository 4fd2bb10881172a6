"""host.pyz: the host tool's verbs on a machine whose own Python has no edgellm."""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import sys
from collections.abc import Sequence
from typing import NoReturn

import edgellm.host
from edgellm.errors import EdgeLLMError, UsageError
from edgellm.host.verbs import HOST_VERBS

EXIT_SOFTWARE = 70
EXIT_INTERRUPTED = 130


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} — see {self.prog} --help")


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit code. Errors are one line on standard error."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in words
    try:
        return _dispatch([word for word in words if word != "--debug"])
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except EdgeLLMError as error:
        if debug:
            raise
        _complain(str(error))
        return error.exit_code
    except Exception as error:
        if debug:
            raise
        _complain(f"internal error ({type(error).__name__}: {error}) — run again with --debug and report what it shows")
        return EXIT_SOFTWARE


def _dispatch(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help"):
        print("\n".join(f"{name:<12} {verb.summary}" for name, verb in HOST_VERBS.items()))
        return 0 if words else UsageError.exit_code
    if words[0] not in HOST_VERBS:
        raise UsageError(f"there is no verb {words[0]!r} here — the verbs are {', '.join(HOST_VERBS)}")
    # An upgrade replaces the file that modules would be read from later.
    for module in pkgutil.iter_modules(edgellm.host.__path__, "edgellm.host."):
        importlib.import_module(module.name)
    verb = importlib.import_module(HOST_VERBS[words[0]].module)
    parser = _Parser(prog=f"edgellm {words[0]}", description=f"{HOST_VERBS[words[0]].summary}.", allow_abbrev=False)
    verb.configure(parser)
    code: int = verb.run(parser.parse_args(words[1:]))
    sys.stdout.flush()
    return code


def _complain(message: str) -> None:
    sys.stderr.write(f"edgellm: {' '.join(message.split())}\n")


if __name__ == "__main__":
    sys.exit(main())
