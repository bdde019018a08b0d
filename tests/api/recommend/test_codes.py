"""The lists of codes are closed: every code has a meaning and a sentence."""

import pytest

from service.api.recommend import advice_texts, sentences
from service.api.recommend.codes import REJECTIONS
from service.domain.codes import AdviceCode, MeaningfulCode, NoteCode, ReasonCode, WarningCode
from service.domain.recommend.advice import ADVISERS
from service.domain.selection.constraints import Constraints, type_checks
from service.domain.selection.selection import OFFER_CODES
from tests.builders.catalogs import catalog


@pytest.mark.parametrize(
    ("codes", "texts"),
    [
        (ReasonCode, sentences.REASONS),
        (WarningCode, sentences.WARNINGS),
        (AdviceCode, advice_texts.ADVICE),
        (NoteCode, sentences.NOTES),
    ],
)
def test_every_code_has_a_sentence(codes: type, texts: object) -> None:
    assert set(codes) == set(texts)  # type: ignore[call-overload]


def test_a_code_means_one_thing() -> None:
    assert len(sentences.SENTENCES) == len(ReasonCode) + len(WarningCode) + len(AdviceCode)


def test_every_piece_of_advice_has_an_adviser() -> None:
    assert list(ADVISERS) == list(AdviceCode)


def test_constraints_have_listed_codes() -> None:
    asked = Constraints(
        words={"provider": ("gcp",)}, at_least={"vcpus": 1e9}, at_most={"gpu_count": -1}, flags={"rdma": False}
    )
    assert {check.code for check in type_checks(asked, catalog())} | set(OFFER_CODES) <= set(REJECTIONS)


@pytest.mark.parametrize("codes", [ReasonCode, WarningCode, AdviceCode, NoteCode])
def test_each_code_is_its_name_and_has_a_meaning(codes: type[MeaningfulCode]) -> None:
    for code in codes:
        assert code == code.name.lower()
        assert code.meaning[0].isupper(), code
        assert code.meaning.endswith("."), code
        assert codes(str(code)) is code


@pytest.mark.parametrize(("code", "meaning"), REJECTIONS.items())
def test_each_rejection_has_a_meaning(code: str, meaning: str) -> None:
    assert code == code.lower()
    assert meaning[0].isupper()
    assert meaning.endswith(".")
