"""Requirements read as ranges of versions, and what it takes to widen one."""

import pytest

from service.domain.errors import QuestionError
from service.domain.versions import EVERY, known_versions, split_requirement, versions_of


@pytest.mark.parametrize(
    ("asked", "known", "meet"),
    [
        ("12.1", ">=11.8", True),
        ("12.1", ">=6.5,<12.0", False),
        ("==12", ">=12.8", True),
        (">=2.3", "<2.1", False),
        (">=2.3", "<2.8", True),
        ("<2.1", ">=2.1", False),
        ("<=2.1", ">=2.1", True),
        (">2.1", "<=2.1", False),
        (">2.1", "<2.1.1", True),
        ("~=2.1", ">=3", False),
        ("~=2.1", ">=2.9", True),
        ("~=2.1.3", ">=2.2", False),
        ("2.1.0", "==2.1", True),
        ("10.2", ">=9", True),
        ("!=2.1", ">=2.1", True),
        ("2.1.0+cu118", ">=2.1,<2.2", True),
        ("2.*", ">=2.9", True),
    ],
)
def test_ranges_meet(asked: str, known: str, meet: bool) -> None:
    assert versions_of(asked, "f").overlaps(known_versions(known)) is meet
    assert known_versions(known).overlaps(versions_of(asked, "f")) is meet


@pytest.mark.parametrize(
    ("asked", "known", "wider"),
    [
        ("11.0", ">=11.8", ">=11,<=11.8"),
        (">=12.1", ">=6.5,<12.0", ">=6.5"),
        ("12.1", ">=6.5,<12.0", ">=6.5,<12.2"),
        ("<2", ">=2", "<=2.0"),
    ],
)
def test_a_widened_range_holds_all_it_did_and_meets_the_other(asked: str, known: str, wider: str) -> None:
    versions, other = versions_of(asked, "f"), known_versions(known)
    widened = versions.extended_to(other)
    assert widened == versions_of(wider, "f")
    assert versions_of(str(widened), "f") == widened
    assert widened.overlaps(other)
    assert widened.low <= versions.low
    assert widened.before is None or (versions.before is not None and widened.before >= versions.before)


@pytest.mark.parametrize(
    ("text", "name", "versions"),
    [
        ("pytorch", "pytorch", ""),
        ("PyTorch >= 2.3, <3", "pytorch", ">=2.3,<3"),
        ("pytorch 2.0", "pytorch", "==2.0"),
        ("torch[extra]==2.1", "torch", "==2.1"),
        ("llama.cpp", "llama.cpp", ""),
        ("flash-attention-3", "flash-attention-3", ""),
        ("hugging face", "hugging face", ""),
        ("???", "???", ""),
    ],
)
def test_a_requirement_has_a_name_and_versions(text: str, name: str, versions: str) -> None:
    assert split_requirement(text, "f") == (name, versions_of(versions, "f") if versions else EVERY)


@pytest.mark.parametrize("specifier", ["new", ">=", ">=3,<2", ">=2,", "2" * 13])
def test_a_text_without_a_version_is_reported(specifier: str) -> None:
    with pytest.raises(QuestionError):
        versions_of(specifier, "workload.software.cuda")
