"""Models over images of another size than they state, against published figures."""

import csv
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.db.read_history import model_from_row
from service.db.tables import MODEL
from service.domain.errors import QuestionError
from service.domain.models.model import Model
from service.domain.models.sample_size import SampleSize, of_size, takes_sizes
from service.files import SEED


def _cell(name: str, text: str) -> object:
    kind = MODEL.c[name].type.python_type
    return None if text == "" else text == "true" if kind is bool else kind(float(text)) if kind is not str else text


def _models() -> dict[str, Model]:
    with (SEED / "models.csv").open(encoding="utf-8", newline="") as file:
        rows = [{name: _cell(name, text) for name, text in row.items()} for row in csv.DictReader(file)]
    return {str(row["id"]): model_from_row(row) for row in rows}


MODELS = _models()
SIZED = sorted(name for name, model in MODELS.items() if takes_sizes(model))


@pytest.mark.parametrize(
    ("name", "sample", "tera_macs"),
    [
        # Table 4 of Peebles and Xie 2022 (2212.09748): DiT-XL/2 with images of 512 pixels.
        ("dit-xl-2", "image 512x512", 0.5246),
        # Table 2 of Xie et al. 2021 (2105.15203): SegFormer on Cityscapes.
        ("segformer-b0", "image 2048x1024", 0.1255),
        ("segformer-b5", "image 2048x1024", 1.4604),
        # Results of timm: ViT-B/16 with images of 384 pixels.
        ("vit-b-16", "image 384x384", 0.0555),
        # Convolutions take four times the 205.7 GFLOPs of images of 640 pixels.
        ("yolov5x", "image 1280x1280", 4 * 0.2057 / 2),
    ],
)
def test_flops_at_another_size_are_those_of_its_publisher(name: str, sample: str, tera_macs: float) -> None:
    assert of_size(MODELS[name], sample).forward_flops_per_sample == pytest.approx(2e12 * tera_macs, rel=0.02)


@pytest.mark.parametrize(
    ("name", "sample", "alike"),
    [
        ("flux.1-dev", "image 512x512", "flux.1-dev-512"),
        ("flux.1-schnell", "image 256x256", "flux.1-schnell-256"),
    ],
)
def test_a_model_at_another_size_is_the_model_that_the_catalog_has_for_it(name: str, sample: str, alike: str) -> None:
    made, known = of_size(MODELS[name], sample), MODELS[alike]
    for figure in (
        "forward_flops_per_sample", "attention_flops_per_sample", "text_token_share", "activation_values_per_sample",
        "block_inputs_per_sample", "other_flops_per_sample",
    ):  # fmt: skip
        assert getattr(made, figure) == pytest.approx(getattr(known, figure), rel=0.03), figure


def test_patches_of_a_larger_image_are_more_tokens() -> None:
    dimensions = of_size(MODELS["vit-b-16"], "image 384x384").transformer
    assert dimensions is not None
    assert dimensions.context_tokens == dimensions.learned_positions == (384 // 16) ** 2 + 1


def test_an_encoder_without_a_token_of_the_class_has_patches_alone() -> None:
    vit = MODELS["vit-b-16"]
    assert vit.transformer is not None
    siglip = replace(vit, transformer=replace(vit.transformer, context_tokens=14 * 14))
    dimensions = of_size(siglip, "image 448x448").transformer
    assert dimensions is not None
    assert dimensions.context_tokens == 28 * 28


@given(st.sampled_from(SIZED), st.integers(1, 4), st.integers(1, 4))
def test_sizes_can_be_changed_one_after_another(name: str, first: int, then: int) -> None:
    model = MODELS[name]
    own = SampleSize.of(model.sample)
    assert own is not None

    def sample(times: int) -> str:
        words, _, frames = model.sample.partition(" of ")
        sides = "x".join(str(side * times) for side in own.sides)
        return f"{words.split()[0]} {sides}{f' of {frames}' if frames else ''}"

    direct, by_way = of_size(model, sample(then)), of_size(of_size(model, sample(first)), sample(then))
    assert by_way.forward_flops_per_sample == pytest.approx(direct.forward_flops_per_sample, rel=1e-6)
    assert by_way.other_flops_per_sample == pytest.approx(direct.other_flops_per_sample)
    assert by_way.transformer == direct.transformer
    assert of_size(direct, model.sample).forward_flops_per_sample == pytest.approx(model.forward_flops_per_sample)


@given(st.sampled_from(SIZED))
def test_larger_samples_take_more_of_everything(name: str) -> None:
    model = MODELS[name]
    assert model.forward_flops_per_sample is not None
    assert 0 <= (model.attention_flops_per_sample or 0.0) < model.forward_flops_per_sample
    assert (model.text_flops_per_sample or 0.0) <= (model.other_flops_per_sample or 0.0)
    twice = of_size(model, model.sample.replace("x", "0x", 1))
    assert 5 < (twice.forward_flops_per_sample or 0.0) / model.forward_flops_per_sample < 100
    assert (twice.saved_values_per_sample or 1.0) >= (model.saved_values_per_sample or 1.0)


@pytest.mark.parametrize("sample", ["image 512x512", "frame 512x512", "image 1024x1024", "video 512x512 of 8 frames"])
def test_other_words_leave_a_model_as_it_is(sample: str) -> None:
    llama = next(model for model in MODELS.values() if model.sample == "token")
    sam = MODELS["sam-vit-b"]
    assert of_size(llama, sample) is llama
    if sample == "image 512x512":
        with pytest.raises(QuestionError, match="SAM ViT-B is known for samples of one size: image 1024x1024"):
            of_size(sam, sample)
    else:
        assert of_size(sam, sample) is sam


def test_a_sample_has_pixels() -> None:
    with pytest.raises(QuestionError, match="at least one pixel"):
        of_size(MODELS["resnet-50"], "image 0x224")
