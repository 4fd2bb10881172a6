"""``edgellm chat``: a conversation in the terminal, or one answer to a question or to piped text."""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Callable, Generator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TextIO
from urllib.parse import urlsplit

from edgellm.cli.arguments import add_config_option
from edgellm.errors import EdgeLLMError, UsageError

if TYPE_CHECKING:
    from edgellm.service.pairing.boards import Board

HTTPS_PORT = 443
KEY_VARIABLE = "EDGELLM_API_KEY"
URL_VARIABLE = "EDGELLM_URL"
LOOPBACK = "127.0.0.1"
DEFAULT_URL = f"http://{LOOPBACK}:8000"
PROMPT = "> "
HELP = "Ctrl-C stops an answer, /reset starts anew, /exit or Ctrl-D leaves."

Message = dict[str, str]


class Conversant(Protocol):
    """Whoever answers: a server, or a model in this process."""

    @property
    def name(self) -> str: ...

    def answer(self, messages: list[Message]) -> Generator[str]:
        """Pieces of the answer as they come; closing the iterator stops the generation."""
        ...

    def close(self) -> None: ...


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("question", metavar="QUESTION", nargs="?", help="ask this alone, print the answer and end")
    parser.add_argument(
        "--url",
        metavar="URL",
        help=f"server to talk to (default: {URL_VARIABLE}, or that of the configuration, else {DEFAULT_URL})",
        default=None,
    )
    parser.add_argument("--model", metavar="NAME", help="which of the server's models (default: its only one)")
    parser.add_argument(
        "--api-key-file", metavar="FILE", help=f"file that holds the key to send (default: the variable {KEY_VARIABLE})"
    )
    parser.add_argument("--local", metavar="SOURCE", help="load this model in this process instead of asking a server")
    parser.add_argument("--system", metavar="TEXT", help="system message that opens the conversation")
    parser.add_argument("--temperature", metavar="T", type=float, help="0 always takes the likeliest token")
    parser.add_argument("--max-tokens", metavar="N", type=int, help="longest answer")
    add_config_option(parser)


def run(namespace: argparse.Namespace) -> int:
    if namespace.max_tokens is not None and namespace.max_tokens < 1:
        raise UsageError("--max-tokens must be at least 1")
    if namespace.temperature is not None and not math.isfinite(namespace.temperature):
        raise UsageError("--temperature must be a finite number")
    if namespace.local and (namespace.url or namespace.model):
        raise UsageError("--local loads a model here; it goes with neither --url nor --model")
    for words, option in (
        (namespace.question, "QUESTION"),
        (namespace.system, "--system"),
        (namespace.model, "--model"),
    ):
        if words is not None:
            _text(words.__str__, option)
    opening: list[Message] = [{"role": "system", "content": namespace.system}] if namespace.system else []
    question = namespace.question
    if question is None and not sys.stdin.isatty():
        question = _text(sys.stdin.read, "standard input")
    if question is not None and not question.strip():
        raise UsageError("there is no question — give one as an argument or on standard input")
    with closing(_conversant(namespace)) as conversant:
        if question is not None:
            return _ask_once(conversant, [*opening, {"role": "user", "content": question}], sys.stdout)
        return converse(conversant, opening, sys.stdout)


def _text(read: Callable[[], str], where: str) -> str:
    """What was read. Raises UsageError for bytes that are no text, also where Python let surrogates stand for them."""
    try:
        text = read()
        text.encode()
    except UnicodeError:
        raise UsageError(f"{where} is not UTF-8 — convert it first") from None
    return text


def _conversant(namespace: argparse.Namespace) -> Conversant:
    if namespace.local:
        from edgellm.cli.chat_in_process import LocalModel

        return LocalModel.from_arguments(namespace)
    from edgellm.cli.chat_over_http import Server

    url, authority = _own_server(namespace.config)
    named = namespace.url or os.environ.get(URL_VARIABLE)
    if named and not _is_at(named, url):
        authority = None
    url = named or url
    board = _paired_board(url)
    return Server(
        url,
        key=_key(namespace.api_key_file) or (board.key() if board else None),
        authority=board.authority_file if board else authority,
        model=namespace.model,
        temperature=namespace.temperature,
        max_tokens=namespace.max_tokens,
    )


def _own_server(config: Path | None) -> tuple[str, Path | None]:
    """The address of the server that this machine's configuration describes, and what vouches for it, if that can be
    read. A configuration that is wrong is the server's to complain about.
    """
    from edgellm.config import load_settings
    from edgellm.errors import ConfigError
    from edgellm.service.tls import authority_beside

    try:
        server = load_settings(file=config, environ=os.environ).settings.server
    except ConfigError:
        return DEFAULT_URL, None
    listens_on = server.host or LOOPBACK
    host = {"0.0.0.0": LOOPBACK, "::": "::1"}.get(listens_on, listens_on)  # noqa: S104  # every address is one of them
    place = f"{f'[{host}]' if ':' in host else host}:{server.port}"
    if server.tls_certificate_file is None:
        return f"http://{place}", None
    authority = server.tls_authority_file or authority_beside(server.tls_certificate_file)
    return f"https://{place}", authority if authority is not None and os.access(authority, os.R_OK) else None


def _is_at(url: str, own: str) -> bool:
    """Whether it names the machine's own server, by whichever path."""
    named, server = urlsplit(url), urlsplit(own)
    return (named.scheme, named.netloc) == (server.scheme, server.netloc)


def _paired_board(url: str) -> Board | None:
    """The board at ``url`` if ``edgellm pair`` was run with it."""
    from edgellm.service.pairing.boards import Board

    try:
        parts = urlsplit(url)
        board = Board.at(parts.hostname or "", parts.port or HTTPS_PORT)
    except ValueError:
        return None  # which Server says
    return board if parts.scheme == "https" and board.is_paired else None


def _key(file: str | None) -> str | None:
    if file is None:
        return os.environ.get(KEY_VARIABLE) or None
    try:
        with open(file, encoding="utf-8") as stream:
            return stream.read(4_096).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--api-key-file {file}: {getattr(error, 'strerror', None) or 'not a text file'}") from None


def _ask_once(conversant: Conversant, messages: list[Message], output: TextIO) -> int:
    with closing(conversant.answer(messages)) as pieces:
        for piece in pieces:
            _show(piece, output)
    output.write("\n")
    output.flush()
    return 0


def converse(conversant: Conversant, opening: list[Message], output: TextIO) -> int:
    """Turn after turn until the person leaves; an error costs its turn only."""
    import readline  # noqa: F401  -- gives input() line editing and history

    output.write(f"{conversant.name}. {HELP}\n")
    messages = list(opening)
    while True:
        try:
            question = _text(lambda: input(PROMPT).strip(), "the question")
        except EOFError:
            output.write("\n")
            return 0
        except KeyboardInterrupt:
            output.write(f"\n{HELP}\n")
            continue
        except UsageError as error:
            output.write(f"[{error}]\n")
            continue
        if question in ("/exit", "/quit"):
            return 0
        if question == "/reset":
            messages = list(opening)
        elif question in ("/help", "/?"):
            output.write(f"{HELP}\n")
        elif question:
            turn: Message = {"role": "user", "content": question}
            answer = _one_turn(conversant, [*messages, turn], output)
            if answer:
                messages += [turn, {"role": "assistant", "content": answer}]


def _one_turn(conversant: Conversant, messages: list[Message], output: TextIO) -> str:
    """What was answered, also when it was stopped in the middle."""
    pieces: list[str] = []
    try:
        with closing(conversant.answer(messages)) as stream:
            for piece in stream:
                _show(piece, output)
                pieces.append(piece)
    except KeyboardInterrupt:
        output.write(" [stopped]")
    except EdgeLLMError as error:
        output.write(f"[{error}]")
    output.write("\n")
    output.flush()
    return "".join(pieces)


def _show(piece: str, output: TextIO) -> None:
    """On a terminal a model's control characters are shown, not obeyed."""
    if output.isatty():
        piece = "".join(char if char.isprintable() or char in "\n\t" else repr(char)[1:-1] for char in piece)
    output.write(piece)
    output.flush()
