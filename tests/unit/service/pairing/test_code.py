"""Pairing codes: read as people type them, with typing errors found, and good for one authority alone."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgellm.errors import ConfigError
from edgellm.service.pairing.code import ALPHABET, SECRET_CHARACTERS, PairingCode

CODES = st.text(ALPHABET, min_size=SECRET_CHARACTERS, max_size=SECRET_CHARACTERS).map(PairingCode)


def test_a_code_has_more_than_eighty_random_bits() -> None:
    assert SECRET_CHARACTERS * math.log2(len(ALPHABET)) >= 80
    assert len({PairingCode.make().secret for _ in range(1000)}) == 1000


@given(CODES)
def test_a_code_is_read_as_people_type_it(code: PairingCode) -> None:
    for typed in (str(code), str(code).lower(), str(code).replace("-", " "), str(code).replace("1", "l")):
        assert PairingCode.read(typed) == code
    assert PairingCode.read(str(code).replace("0", "O").replace("1", "I")) == code


def test_wrong_characters_are_found_nearly_always() -> None:
    code = PairingCode("7KX2M0ABCDEFGHJKMN")
    typed = str(code)
    found = wrong = 0
    for place, char in enumerate(typed):
        for other in ALPHABET.replace(char, "") if char != "-" else "":
            wrong += 1
            try:
                assert PairingCode.read(typed[:place] + other + typed[place + 1 :]) != code
            except ConfigError:
                found += 1
    assert found >= wrong * 0.99  # the board's proof does not fit the others


@pytest.mark.parametrize("typed", ["", "7KX2M", "7KX2M-" * 8, "U" * 20, "é" * 20])
def test_what_is_no_code_is_refused_without_being_shown(typed: str) -> None:
    with pytest.raises(ConfigError, match="a pairing code has") as refused:
        PairingCode.read(typed)
    assert not typed or typed not in str(refused.value)


def test_proofs_are_of_one_code_one_authority_one_side_and_one_client() -> None:
    code, nonce = PairingCode.make(), b"n" * 32
    verifier = code.verifier(b"authority")
    proofs = {
        verifier.proof_of_board(nonce),
        verifier.proof_of_board(b"m" * 32),
        code.verifier(b"another").proof_of_board(nonce),
        PairingCode.make().verifier(b"authority").proof_of_board(nonce),
        verifier.proof_of_client(nonce, b"k" * 32, "a"),
        verifier.proof_of_client(nonce, b"k" * 32, "b"),
        verifier.proof_of_client(nonce, b"j" * 32, "a"),
    }
    assert len(proofs) == 7


def test_a_code_is_in_no_representation() -> None:
    code = PairingCode.make()
    assert code.secret not in repr(code)
    assert code.verifier(b"a").key.hex() not in repr(code.verifier(b"a"))
