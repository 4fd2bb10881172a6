"""The ``edgellm`` command: finds the verb, runs it, and turns errors into one line and an exit code."""

from __future__ import annotations

import errno
import fcntl
import importlib
import io
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TextIO, cast

from edgellm.cli.arguments import Parser
from edgellm.cli.complaint import complain, say_no_more
from edgellm.errors import EdgeLLMError, UsageError
from edgellm.host.verbs import HOST_VERBS

if TYPE_CHECKING:
    import argparse

EXIT_SOFTWARE = 70
EXIT_OUTPUT = 74
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141
DEBUG_VARIABLE = "EDGELLM_DEBUG"
_OUTPUT_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})


class VerbModule(Protocol):
    """What each module of a verb offers; it is imported only when its verb is used."""

    def configure(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, namespace: argparse.Namespace) -> int: ...


@dataclass(frozen=True, slots=True)
class Verb:
    summary: str
    module: str

    def load(self) -> VerbModule:
        return cast(VerbModule, importlib.import_module(self.module))


VERBS: Mapping[str, Verb] = {
    "serve": Verb("Serve models over HTTP, in the foreground", "edgellm.cli.serve"),
    "chat": Verb("Talk to a model in the terminal", "edgellm.cli.chat"),
    "models": Verb("List, add and show models", "edgellm.cli.models"),
    "engine": Verb("Build, list, explain, verify and remove engines", "edgellm.cli.engine"),
    "keys": Verb("Add, list and revoke clients' API keys", "edgellm.cli.keys"),
    "pair": Verb("Get a key of a board, with the code it shows", "edgellm.cli.pair"),
    "pair-code": Verb("Open a code for one client to pair with this board", "edgellm.cli.pair_code"),
    "paired": Verb("List and revoke the clients that paired with this board", "edgellm.cli.paired"),
    "tls": Verb("Make certificates for serving HTTPS", "edgellm.cli.tls"),
    "config": Verb("Check and show the configuration", "edgellm.cli.config"),
    "reload": Verb("Let the running daemon take its configuration on anew", "edgellm.cli.reload"),
    "health": Verb("Say whether the running daemon answers", "edgellm.cli.health"),
    "doctor": Verb("Say what this machine can run, and what it lacks", "edgellm.cli.doctor"),
    "prewarm": Verb("Fetch, import and build what the configuration needs", "edgellm.cli.prewarm"),
    "install": Verb("Install the service: its units, user and folders", "edgellm.cli.install"),
    **{name: Verb(verb.summary, verb.module) for name, verb in HOST_VERBS.items()},
    "version": Verb("Show versions", "edgellm.cli.version"),
}

_OVERVIEW = "edgellm: LLMs on the edge, served to OpenAI clients."


def overview() -> str:
    """The text of ``edgellm --help``."""
    lines = [_OVERVIEW, "", "usage: edgellm VERB [options]     edgellm VERB --help for more", ""]
    lines += [f"  {name:<10} {verb.summary}" for name, verb in VERBS.items()]
    lines += ["", "  --version  Show the version", "  --debug    Show tracebacks (also EDGELLM_DEBUG=1)"]
    return "\n".join(lines)


def parser_of(name: str) -> Parser:
    """The argument parser of one verb."""
    verb = VERBS[name]
    parser = Parser(prog=f"edgellm {name}", description=f"{verb.summary}.", allow_abbrev=False)
    verb.load().configure(parser)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit code. Errors that edgellm raises on purpose are one line on standard error."""
    _open_what_is_closed()
    _show_what_the_terminal_cannot()
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in words or os.environ.get(DEBUG_VARIABLE, "") not in ("", "0")
    try:
        code = _dispatch([word for word in words if word != "--debug"])
        sys.stdout.flush()
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        say_no_more(sys.stdout)
        return EXIT_BROKEN_PIPE
    except EdgeLLMError as error:
        if debug:
            raise
        complain(str(error))
        return error.exit_code
    except OSError as error:
        if error.errno == errno.EBADF and not _is_writable(sys.stdout):
            remedy = "standard output is open for reading alone: write 1> FILE"
        elif error.errno in _OUTPUT_ERRORS:
            remedy = "make room where it goes"
        else:
            return _defect(error, debug)
        if debug:
            raise
        say_no_more(sys.stdout)
        complain(f"the output cannot be written ({error.strerror}) — {remedy}")
        return EXIT_OUTPUT
    except Exception as error:
        return _defect(error, debug)
    return code


def _defect(error: Exception, debug: bool) -> int:
    """The last frame: a defect of ours is still one line and an exit code."""
    if debug:
        raise error
    complain(f"internal error ({type(error).__name__}: {error}) — run again with --debug and report what it shows")
    return EXIT_SOFTWARE


def _is_writable(stream: TextIO) -> bool:
    try:
        return fcntl.fcntl(stream.fileno(), fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY
    except (OSError, ValueError):
        return False


def _open_what_is_closed() -> None:
    """Whoever started us with a standard stream closed wants nothing of it: it is empty, and takes all that is written.

    With its number taken, no file or socket of ours gets it, nor what programs that we start write to it.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):  # in the order of their numbers
        if getattr(sys, name) is None:
            number = os.open(os.devnull, os.O_RDWR)  # the lowest that is free
            os.set_inheritable(number, True)
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115  # it stays open


def _show_what_the_terminal_cannot() -> None:
    """Escape characters that standard output's encoding lacks, as Python does on standard error."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


OTHER_NAMES = {"rollback": "upgrade --rollback", "update": "upgrade", "resume": "upgrade --resume"}  # as people say it


def _dispatch(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        print(overview())
        return 0 if words else UsageError.exit_code
    if words[0] in ("-V", "--version"):
        words = ["version"]
    if words[0] not in VERBS:
        meant = f"it is edgellm {OTHER_NAMES[words[0]]}; " if words[0] in OTHER_NAMES else ""
        raise UsageError(f"there is no verb {words[0]!r} — {meant}the verbs are {', '.join(VERBS)}")
    namespace = parser_of(words[0]).parse_args(words[1:])
    return VERBS[words[0]].load().run(namespace)
