"""The lists of codes are closed: every code has a meaning and a sentence."""

import pytest

from service.api.recommend import sentences
from service.api.recommend.codes import ADVICE, NOTES, REASONS, REJECTIONS, WARNINGS
from service.domain.recommend.advice import ADVISERS
from service.domain.recommend.codes import AdviceCode, NoteCode, ReasonCode, WarningCode
from service.domain.selection.constraints import Constraints, type_checks
from service.domain.selection.selection import OFFER_CODES
from tests.builders.catalogs import catalog


@pytest.mark.parametrize(
    ("codes", "meanings", "texts"),
    [
        (ReasonCode, REASONS, sentences.REASONS),
        (WarningCode, WARNINGS, sentences.WARNINGS),
        (AdviceCode, ADVICE, sentences.ADVICE),
        (NoteCode, NOTES, sentences.NOTES),
    ],
)
def test_every_code_has_a_meaning_and_a_sentence(codes: type, meanings: object, texts: object) -> None:
    assert set(codes) == set(meanings) == set(texts)  # type: ignore[call-overload]


def test_a_code_means_one_thing() -> None:
    assert len(sentences.SENTENCES) == len(REASONS) + len(WARNINGS) + len(ADVICE)


def test_every_piece_of_advice_has_an_adviser() -> None:
    assert list(ADVISERS) == list(AdviceCode)


def test_constraints_have_listed_codes() -> None:
    asked = Constraints(
        words={"provider": ("gcp",)}, at_least={"vcpus": 1e9}, at_most={"gpu_count": -1}, flags={"rdma": False}
    )
    assert {check.code for check in type_checks(asked, catalog())} | set(OFFER_CODES) <= set(REJECTIONS)


@pytest.mark.parametrize("meanings", [REASONS, WARNINGS, ADVICE, NOTES, REJECTIONS])
def test_each_meaning_is_a_sentence(meanings: dict[str, str]) -> None:
    for code, sentence in meanings.items():
        assert code == code.lower()
        assert sentence[0].isupper(), code
        assert sentence.endswith("."), code
