"""The published runs of the seed can be put as questions, and mean the same to the catalog."""

import csv
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from service.accuracy.rows import Row, RunQuestion, UnansweredRun, counted_rows, question_of, software_of
from service.accuracy.scoring import SPLITS, subset_of
from service.cli.main import main
from service.domain.jobs.stacks import software_called
from service.files import SEED


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    with (SEED / "published_runs.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def question_or_reason(row: Row) -> RunQuestion | str:
    try:
        return question_of(row)
    except UnansweredRun as refused:
        return str(refused)


def test_nearly_all_can_be_put_as_questions_and_the_others_say_why(rows: list[Row]) -> None:
    answers = [question_or_reason(row) for row in rows]
    assert Counter(answer for answer in answers if isinstance(answer, str)) == {
        "The amount of work is not given.": 14,
        "The number of accelerators is not given.": 4,
        "The unit 'scaling efficiency % vs 1 GPU' is not one the answer has.": 1,
    }


def test_each_is_scored_and_can_be_left_out(rows: list[Row]) -> None:
    for row in rows:
        question = question_or_reason(row)
        if isinstance(question, RunQuestion):
            assert subset_of(question)
            assert all(split(row) for split in SPLITS.values())


def test_stacks_keep_their_name_with_a_release(rows: list[Row]) -> None:
    """NVIDIA's tuned examples and PyTorch before 2.0 are stacks of their own; their rows say `pytorch`."""
    renamed = [(row, stack_of(row)) for row in rows if stack_of(row) != row["stack"]]
    assert Counter((row["stack"], stack) for row, stack in renamed) == {
        ("pytorch", "deeplearningexamples"): 106,
        ("pytorch", "pytorch-1"): 124,
    }
    assert all(("DeepLearningExamples" in row["source"]) == (stack == "deeplearningexamples") for row, stack in renamed)


def stack_of(row: Row) -> str:
    return software_called(software_of(row).get("framework")).line.replace("unknown", "")


def test_rows_are_sorted_and_of_good_quality(rows: list[Row]) -> None:
    ids = [row["id"] for row in rows]
    assert ids == sorted(set(ids))
    assert {row["quality"] for row in rows} == {"A", "B"}
    assert len(rows) > 1800


def test_a_run_has_the_network_and_the_stages_that_its_row_states(rows: list[Row]) -> None:
    """Dell's nodes of four A100 have two ports of 200 Gbps, not one per GPU; MLPerf's GPT-3 interleaves 8 stages."""
    by_id = {row["id"]: row for row in rows}
    dell, unstated = by_id["train-throughput-bert-large-a100-sxm4-80gb-8-16"], by_id[NETWORK_NOT_STATED]
    assert question_of(dell).body["machine"]["network_gbps"] == 400
    assert question_of(unstated).body["machine"]["network_gbps"] == 8 * 400
    gpt3 = question_of(by_id["train-time-gpt3-175b-h100-sxm5-80gb-10752-1"]).body["layout"]
    assert (gpt3["tensor"], gpt3["pipeline"], gpt3["virtual_stages"], gpt3["data"]) == (4, 6, 8, 448)
    unnumbered = dict(by_id["train-throughput-megatron-175b-kor22-a100-sxm4-80gb-64-1"], notes="interleaved 1F1B")
    assert question_of(unnumbered).body["layout"]["virtual_stages"] == 3


def test_images_and_weights_of_bitsandbytes_are_asked_as_users_name_them(rows: list[Row]) -> None:
    with_images = [row for row in rows if "tokens of images" in row["notes"]]
    assert with_images
    for row in with_images:
        assert 0 < question_of(row).body["workload"]["image_tokens"] < float(row["input_len"])
    in_nf4 = [
        question_of(row).body["workload"]
        for row in rows
        if row["precision"].startswith("nf4") and "infer" in row["kind"]
    ]
    assert {tuple(work["precision"]) for work in in_nf4} == {("nf4",), ("nf4-dq",)}
    assert not any("weight_bits" in work for work in in_nf4)


def test_a_row_without_lengths_leaves_them_to_the_model(rows: list[Row]) -> None:
    """A vision transformer reads its patches, whose number no table repeats."""
    by_id = {row["id"]: row for row in rows}
    image, text = by_id["infer-throughput-vit-b-16-rtx-3090-24gb-timm"], FOREIGN_ROW
    assert not {"input_length", "output_length"} & question_of(image).body["workload"].keys()
    assert question_of({**image, **text, "model_id": "llama-3.1-8b"}).body["workload"]["input_length"] == 512


def test_a_run_of_dpo_is_asked_with_its_loss_and_its_pairs(rows: list[Row]) -> None:
    """A pair is two sequences, each of which the reference reads too."""
    by_id = {row["id"]: row for row in rows}
    full, quantised = (
        question_of(by_id[name]) for name in ("train-time-pythia-2-8b-a100-sxm4-80gb-4-2", QUANTISED_DPO)
    )
    assert (full.body["workload"]["purpose"], full.body["workload"]["method"]) == ("dpo", "full")
    assert full.body["workload"]["amount"] == {"pairs": 160_800}
    assert (quantised.body["workload"]["purpose"], quantised.body["workload"]["method"]) == ("dpo", "qlora")
    assert subset_of(replace(full, quantity="samples_per_second", row=full.row | {"kind": "train_throughput"})) == (
        "training: DPO"
    )


def test_a_run_says_whether_its_attention_was_fused(rows: list[Row]) -> None:
    """gpt-oss has sinks, for which Transformers has no fused attention; Unsloth has."""
    told = {
        row["stack"]: question_of(row).body["workload"].get("flash_attention")
        for row in rows
        if row["source_id"] == "runs-unsloth-moe" and row["model_id"] == "gpt-oss-20b"
    }
    assert told == {"transformers": False, "unsloth": None}


QUANTISED_DPO = "train-time-mistral-7b-h100-sxm5-80gb-1-1"

NETWORK_NOT_STATED = "train-time-llama-2-70b-h100-sxm5-80gb-32-1"

FOREIGN_ROW = {
    "kind": "infer_throughput",
    "task": "infer",
    "model": "Llama-3.1-8B",
    "family": "llm",
    "precision": "bf16",
    "input_len": "512",
    "output_len": "128",
    "batch_or_concurrency": "16",
    "accelerator": "H100-SXM5-80GB",
    "total_accelerators": "1",
    "framework": "vLLM 0.11.0 (V1 engine)",
    "value": "1000",
    "unit": "output tokens/s(total)",
    "source": "a table",
    "quality": "A",
    "group": "one",
    "notes": "random, 160 requests",
    "steady": "1",
    "ttft_ms_mean": "80",
    "kv_precision": "16-bit (engine default)",
}


def table_of(row: Row, path: Path) -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, row)
        writer.writeheader()
        writer.writerow(row)
    return path


def test_a_table_with_the_names_of_its_source_is_asked_too(tmp_path: Path) -> None:
    throughput, first_token = map(question_of, counted_rows(table_of(FOREIGN_ROW, tmp_path / "runs.csv")))
    assert throughput.body == first_token.body
    assert throughput.body["machine"]["gpu"] == "h100-sxm5-80gb"
    assert throughput.body["workload"]["model"] == "Llama-3.1-8B"
    assert throughput.body["workload"]["software"] == {"framework": "vllm==0.11.0"}
    assert "kv_cache_precision" not in throughput.body["workload"]
    assert (throughput.quantity, throughput.value) == ("tokens_per_second", 1000)
    assert (first_token.quantity, first_token.value) == ("seconds_to_first_token", 0.08)
    assert first_token.extras["first_wave"] == 16 / 160


def test_a_mean_with_an_unknown_share_of_first_waits_is_not_compared(tmp_path: Path) -> None:
    rows = list(counted_rows(table_of(FOREIGN_ROW | {"notes": ""}, tmp_path / "runs.csv")))
    assert [row["unit"] for row in rows] == ["output tokens/s(total)"]


def test_a_file_that_is_no_table_of_runs_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = table_of({"model": "Llama-3.1-8B", "quality": "A"}, tmp_path / "runs.csv")
    assert main(["calibrate", str(table)]) == 1
    assert "runs.csv is not a table of published runs: it lacks the columns accelerator, " in capsys.readouterr().err


def test_the_share_inside_the_band_counts_every_way_to_leave_a_run_out(
    rows: list[Row], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "runs.csv"
    with table.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(row for row in rows if row["source_id"] == "runs-litgpt")
    assert main(["calibrate", str(table)]) == 0
    *splits, over_all = re.split(r"^== .*\n", capsys.readouterr().out, flags=re.MULTILINE)[1:]
    line = re.compile(r"^inference memory .* (\d+)%$", re.MULTILINE)
    shares = [float(share) for part in splits for share in line.findall(part)]
    assert len(shares) == len(SPLITS)
    assert float(line.findall(over_all)[0]) == pytest.approx(sum(shares) / len(SPLITS), abs=1.0)
