"""Answers to files, in parts and by several processes: the bytes of a plain run, however it was stopped."""

from __future__ import annotations

import csv
import io
import json
import random
import shutil
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

import unrolled
from tests.cli.test_generate import call
from tests.corpus.warm_crew import warm_crew
from tests.runtime.folders import STORED, folder_of
from unrolled import UserError
from unrolled.corpus import job, part_file
from unrolled.corpus.crew import Alone
from unrolled.corpus.part_file import PartFile
from unrolled.errors import Note

WORDS = ["fine", "dull", "one", "two", "three", "seven", "Ada", "met", "3", "5", "and"]
MODELS = {
    "classify": STORED / "classify.safetensors",
    "translate": STORED / "translate-luong.safetensors",
    "generate": STORED / "generate-lstm.safetensors",
    "tag": STORED / "tag-crf.safetensors",
}


def lines(number: int, seed: int = 0) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=draw.randint(0, 9))) for _ in range(number)]


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short files have several parts, and every part is recorded."""
    monkeypatch.setattr(job, "PART", 8)
    monkeypatch.setattr(part_file, "SECONDS", 0.0)


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    path = tmp_path / "texts.txt"
    path.write_text("".join(f"{line}\n" for line in lines(50)))
    return path


def run(model: Path | unrolled.Model, file: Any, out: Path, **options: Any) -> bytes:
    unrolled.run(model, file, out=out, **{"quiet": True, **options})
    assert not out.with_name(f"{out.name}.part").exists()
    return out.read_bytes()


@pytest.mark.parametrize("form", ["text", "jsonl", "csv"])
@pytest.mark.parametrize("task", ["classify", "translate", "tag"])
@pytest.mark.filterwarnings("ignore::unrolled.errors.Note")
def test_a_file_has_the_bytes_of_a_plain_run(task: str, form: str, texts: Path, tmp_path: Path) -> None:
    code, plain, _ = call("run", MODELS[task], texts, "--format", form)
    assert code == 0
    assert run(MODELS[task], texts, tmp_path / "a", format=form).decode() == plain
    assert len(plain.splitlines()) >= 50


@pytest.mark.filterwarnings("ignore::unrolled.errors.Note")
def test_texts_are_drawn_with_the_seeds_of_a_plain_run(texts: Path, tmp_path: Path) -> None:
    drawn = ["--seed", "4", "--max-tokens", "5"]
    code, plain, _ = call("run", MODELS["generate"], texts, "--format", "jsonl", *drawn)
    assert code == 0
    assert run(MODELS["generate"], texts, tmp_path / "a.jsonl", seed=4, max_tokens=5).decode() == plain
    several = {"temperature": 0.7, "seed": 3, "n_best": 2}
    whole = unrolled.load(MODELS["translate"]).predict(texts.read_text().splitlines(), **several)
    parts = run(MODELS["translate"], texts, tmp_path / "b.jsonl", **several).decode().splitlines()
    assert [json.loads(line)["translation"] for line in parts] == [one.text for one in whole]


@pytest.mark.filterwarnings("ignore::unrolled.errors.Note")
def test_without_a_seed_a_stopped_run_goes_on_with_its_own(
    texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, options = tmp_path / "a", {"max_tokens": 4}
    with pytest.MonkeyPatch.context() as patch:
        stop_at(patch, 30)
        with pytest.raises(Stopped):
            run(MODELS["generate"], texts, out, **options)
    seed = json.loads((tmp_path / "a.part" / "job.json").read_text())["seed"]
    assert run(MODELS["generate"], texts, out, **options) == run(
        MODELS["generate"], texts, tmp_path / "b", seed=seed, **options
    )


def written(rows: list[dict[str, Any]], path: Path) -> Path:
    if path.suffix == ".parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, rows[0], delimiter="\t" if path.suffix == ".tsv" else ",")
            writer.writeheader()
            writer.writerows(rows)
    return path


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".jsonl", ".parquet"])
@pytest.mark.filterwarnings("ignore::unrolled.errors.Note")
def test_columns_are_kept_from_tables(ending: str, tmp_path: Path) -> None:
    rows = [{"id": 10 + number, "text": text or "-", "label": "good"} for number, text in enumerate(lines(30))]
    files = [written(rows[:20], tmp_path / f"a{ending}"), written(rows[20:], tmp_path / f"b{ending}")]
    code, plain, _ = call("run", MODELS["classify"], *files, "--format", "csv", "--keep", "id,label")
    assert code == 0
    found = run(MODELS["classify"], files, tmp_path / "out.csv", keep=["id", "label"]).decode()
    assert found == plain
    table = list(csv.DictReader(io.StringIO(found)))
    assert [int(row["id"]) for row in table] == [row["id"] for row in rows]
    assert {row["given_label"] for row in table} == {"good"}


def recordings(folder: Path) -> list[Path]:
    """Recordings, of which two cannot be read."""
    files = []
    for number in range(20):
        path = folder / f"{number}.wav"
        shutil.copy(STORED / "sound.wav", path)
        files.append(path)
    files[3].write_text("no sound")
    files[17].unlink()
    return files


@pytest.mark.parametrize("form", ["jsonl", "csv", "text"])
def test_inputs_that_cannot_be_read_have_their_errors_in_the_answers(form: str, tmp_path: Path) -> None:
    files, model = recordings(tmp_path), STORED / "recognize.safetensors"
    with pytest.warns(Note, match=r"17\.wav"):
        code, plain, said = call("run", model, *files, "--format", form)
    assert code == 2
    with pytest.warns(Note, match=r"17\.wav"), pytest.raises(UserError) as error:
        run(model, files, tmp_path / "out", format=form)
    assert str(error.value) == f"2 of 20 inputs could not be read. The others are in {tmp_path / 'out'}."
    assert "2 of 20 inputs could not be read. The others are above." in said
    assert (tmp_path / "out").read_text() == plain
    names, out = "".join(f"{file}\n" for file in files), tmp_path / "names"
    with pytest.warns(Note, match=r"17\.wav"):
        assert call("run", model, "--out", out, "--format", form, given=names)[0] == 2
    assert out.read_text() == plain
    assert not (tmp_path / "out.part").exists()


def test_pictures_of_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "pictures"
    folder.mkdir()
    for number in range(9):
        shutil.copy(STORED / "picture.png", folder / f"{number}.png")
    (folder / "4.png").write_text("no picture")
    model = STORED / "caption.safetensors"
    with pytest.warns(Note, match=r"4\.png"):
        code, plain, _ = call("run", model, folder, "--json")
    assert code == 2
    with pytest.warns(Note, match=r"4\.png"), pytest.raises(UserError, match="1 of 9 inputs could not be read"):
        run(model, folder, tmp_path / "out.jsonl")
    assert (tmp_path / "out.jsonl").read_text() == plain


@pytest.mark.filterwarnings("ignore::unrolled.errors.Note")
def test_an_exported_model_answers_too(texts: Path, tmp_path: Path) -> None:
    code, plain, _ = call("run", folder_of("classify"), texts, "--json")
    assert code == 0
    assert run(folder_of("classify"), texts, tmp_path / "a.jsonl").decode() == plain


@pytest.mark.filterwarnings("ignore::unrolled.errors.Note")
def test_a_model_in_memory_answers_too(texts: Path, tmp_path: Path) -> None:
    model = unrolled.load(MODELS["classify"])
    assert run(model, texts, tmp_path / "a") == run(MODELS["classify"], texts, tmp_path / "b")


@pytest.mark.parametrize(("task", "form"), [("classify", "jsonl"), ("translate", "csv"), ("tag", "csv")])
@pytest.mark.filterwarnings("ignore::unrolled.errors.Note")
def test_two_workers_give_the_bytes_of_one(
    task: str, form: str, texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = run(MODELS[task], texts, tmp_path / "one", format=form)
    with warm_crew(monkeypatch):
        assert run(MODELS[task], texts, tmp_path / "two", format=form, workers=2) == alone


class Stopped(BaseException):
    """The process ends here."""


def stop_at(patch: pytest.MonkeyPatch, number: int) -> list[str]:
    """Stop at event `number` of a run: before or after any step that leaves a trace on the disk."""
    events: list[str] = []

    def event(name: str) -> None:
        events.append(name)
        if len(events) == number:
            raise Stopped

    def watched(owner: Any, name: str) -> None:
        real = getattr(owner, name)

        def step(*given: Any, **options: Any) -> Any:
            event(f"before {name}")
            found = real(*given, **options)
            event(f"after {name}")
            return found

        patch.setattr(owner, name, step)

    for name in ("_begin", "_write", "append", "_cut"):
        watched(PartFile, name)
    watched(Path, "replace")
    watched(shutil, "rmtree")
    watched(Alone, "submit")
    return events


@pytest.mark.filterwarnings("ignore::unrolled.errors.Note")
def test_stopped_at_any_step_it_goes_on_to_the_same_bytes(tmp_path: Path) -> None:
    file, out = tmp_path / "texts.txt", tmp_path / "out.csv"
    file.write_text("".join(f"{line}\n" for line in lines(20)))
    model = unrolled.load(MODELS["classify"])
    undisturbed = run(model, file, tmp_path / "undisturbed.csv")
    for number in range(1, 200, 2):
        out.unlink(missing_ok=True)
        with pytest.MonkeyPatch.context() as patch:
            events = stop_at(patch, number)
            try:
                run(model, file, out)
                break  # there are no more events
            except Stopped:
                pass
        if not (out.exists() and not (tmp_path / "out.csv.part").exists()):
            assert run(model, file, out) == undisturbed, events[-1]
        assert out.read_bytes() == undisturbed, events[-1]
    assert number > 40


def test_stopped_again_and_again_it_still_ends(tmp_path: Path, texts: Path) -> None:
    undisturbed = run(MODELS["tag"], texts, tmp_path / "a.csv")
    out, model, stops = tmp_path / "b.csv", unrolled.load(MODELS["tag"]), 0
    while not out.exists() and stops < 40:
        with pytest.MonkeyPatch.context() as patch:
            stop_at(patch, 20)
            try:
                run(model, texts, out)
            except Stopped:
                stops += 1
    assert stops > 3
    assert out.read_bytes() == undisturbed


@pytest.fixture
def stopped(texts: Path, tmp_path: Path) -> Path:
    """The file that a stopped run would have written."""
    with pytest.MonkeyPatch.context() as patch:
        stop_at(patch, 25)
        with pytest.raises(Stopped):
            run(MODELS["classify"], texts, tmp_path / "out.jsonl")
    assert (tmp_path / "out.jsonl.part" / "progress.json").exists()
    return tmp_path / "out.jsonl"


def refused(*given: Any, **options: Any) -> str:
    with pytest.raises(UserError) as error:
        run(*given, **options)
    return str(error.value)


@pytest.mark.filterwarnings("ignore::unrolled.errors.Note")
def test_what_another_run_left_is_not_gone_on_with(stopped: Path, texts: Path, tmp_path: Path) -> None:
    part = f"{stopped}.part"
    fix = "Give the command that began it, another --out, or --force to begin again."
    other = tmp_path / "other.txt"
    other.write_text("fine\n")
    assert refused(MODELS["classify"], other, stopped) == f"{part} was begun with another input. {fix}"
    assert refused(MODELS["tag"], texts, stopped) == f"{part} was begun with another model. {fix}"
    assert refused(MODELS["classify"], texts, stopped, format="csv") == f"{part} was begun with another format. {fix}"
    changed = refused(MODELS["translate"], texts, stopped, beam=2)
    assert changed == f"{part} was begun with another model and other options. {fix}"
    assert run(MODELS["classify"], other, stopped, force=True) == run(MODELS["classify"], other, tmp_path / "b.jsonl")


@pytest.mark.filterwarnings("ignore::unrolled.errors.Note")
def test_damage_is_told(stopped: Path, texts: Path) -> None:
    part = Path(f"{stopped}.part")
    (part / "progress.json").write_text("{")
    assert refused(MODELS["classify"], texts, stopped) == f"{part} is damaged. Remove it to begin again: rm -r {part}"
    run(MODELS["classify"], texts, stopped, force=True)


def test_a_finished_file_is_not_overwritten_unasked(texts: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.txt"
    out.write_text("mine\n")
    said = refused(MODELS["classify"], texts, out)
    assert said == f"{out} exists already. Choose another name, or give --force to replace it."
    assert out.read_text() == "mine\n"
    assert not Path(f"{out}.part").exists()
    with pytest.warns(Note, match="empty"):
        assert len(run(MODELS["classify"], texts, out, force=True).splitlines()) == 50


def test_a_folder_of_somebody_else_is_left_alone(texts: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out.txt.part"
    folder.mkdir()
    (folder / "mine.txt").touch()
    assert refused(MODELS["classify"], texts, tmp_path / "out.txt").startswith(f"{folder} holds 'mine.txt', and")
    assert [path.name for path in folder.iterdir()] == ["mine.txt"]


def test_two_runs_do_not_write_the_same_file(texts: Path, tmp_path: Path) -> None:
    part = PartFile.opened(tmp_path / "out", {}, force=False)
    assert refused(MODELS["classify"], texts, tmp_path / "out").startswith(f"Another process writes {part.folder}.")
    part.close()


def test_other_mistakes_are_told(texts: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.txt"
    rows = STORED / "waves.csv"
    assert refused(STORED / "forecast.safetensors", rows, out, workers=2) == (
        "A forecast goes on from the rows before it: rows are answered one after the other, in one process. "
        "Leave --workers out. Files of several series may be answered by several commands."
    )
    assert refused(MODELS["classify"], texts, tmp_path / "a.jsonl.gz").endswith(
        "answers are written as plain text. Give a name in .jsonl, .csv or .txt."
    )
    assert refused(MODELS["classify"], texts, tmp_path / "no" / "a").startswith(f"The folder {tmp_path / 'no'} does")
    assert (
        refused(MODELS["classify"], texts, out, workers=0) == "workers=0 is not a number of processes. Use 1 or more."
    )
    assert refused(MODELS["classify"], texts, out, format="json").startswith("Unknown format 'json'.")
    assert "beam" in refused(MODELS["classify"], texts, out, beam=2)
    model = unrolled.load(MODELS["translate"])
    said = refused(model, texts, out, rescore=model)
    assert said.startswith("rescore is Model, which other processes and a later run cannot have.")
    (tmp_path / "bad.txt").write_bytes(b"fine\n\xff\n")
    assert "bad.txt is not UTF-8" in refused(MODELS["classify"], tmp_path / "bad.txt", out)
    assert not out.exists()


@pytest.mark.filterwarnings("ignore::unrolled.errors.Note")
def test_from_the_command_line(texts: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    code, said, _ = call("run", MODELS["classify"], texts, "--out", out)
    assert (code, said) == (0, "")
    assert json.loads(out.read_text().splitlines()[0])["input"] == texts.read_text().splitlines()[0]
    assert call("run", MODELS["classify"], texts, "--out", out)[0] == 2
    code, _, said = call("run", MODELS["classify"], "--force", "--text", "fine")
    assert said == "unrolled: --force is for --out. Give the file to write, or leave it out.\n"
    with pytest.warns(Note, match="Standard input cannot be read again"):
        assert call("run", MODELS["classify"], "--out", tmp_path / "b", given="fine\ndull\n")[0] == 0
    assert len((tmp_path / "b").read_text().splitlines()) == 2


@pytest.mark.filterwarnings("ignore::unrolled.errors.Note")
def test_a_forecast_is_written_as_a_whole(tmp_path: Path) -> None:
    code, plain, _ = call("run", STORED / "forecast.safetensors", STORED / "waves.csv", "--format", "csv")
    assert code == 0
    assert run(STORED / "forecast.safetensors", STORED / "waves.csv", tmp_path / "out.csv").decode() == plain
