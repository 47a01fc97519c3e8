"""Every reader of files and texts, with a small file of our own writers as its seed."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import shutil
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import soundfile
from PIL import Image

from tests.faults.fuzz.agreement import agree, both
from tests.faults.fuzz.file_bytes import npy, npz, parquet
from tests.faults.fuzz.weight_files import keras_file, run_keras, safetensors_file, take, torch_file
from tests.fitting import fitting
from tests.see.models import KINDS, facts_of, input_of, waves, write_files
from tests.tasks.recognition import RATE, frames, marks, tone
from unrolled import api
from unrolled.config import apply, read_toml, write_toml
from unrolled.data.batching.token_cache import TokenCache
from unrolled.data.readers.media.archives import Medium
from unrolled.data.readers.media.audio import audio_blocks, audio_facts
from unrolled.errors import UserError
from unrolled.jobs import TrainingJob
from unrolled.recipes import read_recipe
from unrolled.search import NGram
from unrolled.search.ctc.files import decoder_from_files, read_posteriors
from unrolled.see.views.runs import run_rows
from unrolled.tasks import TASKS
from unrolled.tasks.runner import Request
from unrolled.text import Vectors
from unrolled.training import Origin, Run

MODELS = [
    *("generate-lstm", "generate-transformer", "generate-feedforward", "classify", "tag-crf", "tag-softmax"),
    *("forecast", "translate-luong", "translate-transformer", "recognize", "recognize-transformer", "caption"),
]
SMALL_CAPTION = {"model.channels": [4], "data.size": 16}


@dataclass(frozen=True)
class Target:
    """A reader: the ending and the seed of its file, the kind of damage it gets, and what is done with the file."""

    name: str
    kind: str  # of mutate.MUTATORS
    suffix: str
    seed: bytes
    run: Callable[[Path], object]


def make_targets(folder: Path) -> dict[str, Target]:
    """All targets; their seeds and the models they need are made in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    data = folder / "data"
    if not data.exists():
        data.mkdir()
        write_files(data)
    models = folder / "models"
    models.mkdir(exist_ok=True)
    for kind in MODELS:
        _save_model(kind, data, models / f"{kind}.safetensors")
    found = [
        *_model_targets(models),
        *_training_targets(folder, data),
        *_table_targets(data),
        *_media_targets(data, models),
        *_run_targets(data, models),
        *_search_targets(folder, data),
        *_other_targets(folder, data),
    ]
    return {target.name: target for target in found}


def _config(kind: str, data: Path) -> Any:
    task, file, keys, _ = KINDS[kind]
    return api.configure(task, [], fitting(task, {**keys, "data.train": str(data / file)}, **facts_of(file)))


def _save_model(kind: str, data: Path, path: Path) -> None:
    if not path.exists():
        TrainingJob(_config(kind, data)).model.save(path)


def _model_targets(models: Path) -> Iterator[Target]:
    for kind in MODELS:

        def run(path: Path, kind: str = kind) -> object:
            model = api.load(path)
            options: dict[str, Any] = {"max_tokens": 4} if kind.startswith("generate") else {}
            return repr(model), model.predict(input_of(kind), **options)

        yield Target(f"model-{kind}", "model", ".safetensors", (models / f"{kind}.safetensors").read_bytes(), run)


def _training_targets(folder: Path, data: Path) -> Iterator[Target]:
    """The files of a run folder: each damaged, the others as they were."""
    whole = folder / "run"
    config = apply(_config("generate-lstm", data), {"train.max_steps": 4, "train.eval_every": 2})
    if not whole.exists():
        job = TrainingJob(config)
        made = Run(whole, job.trainer(), job.model.save, Origin(data=job.data.fingerprint))
        whole.mkdir()
        (whole / "config.toml").write_text(write_toml(config, comments=False))
        for _ in made.steps():
            pass
    job = TrainingJob(config)

    def resume(name: str) -> Callable[[Path], object]:
        def run(path: Path) -> object:
            copy = path.parent / "copy"
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(whole, copy)
            shutil.copy(path, copy / name)
            if name == "checkpoint/state.json" and path.stat().st_size % 3:
                with contextlib.suppress(
                    ValueError, RecursionError, AttributeError, TypeError
                ):  # as an older version's
                    document = json.loads(path.read_bytes())
                    document.pop("state_sha256", None)
                    (copy / name).write_text(json.dumps(document))
            if name.startswith("checkpoint/"):  # the generation before takes its place; without it there is one message
                if path.stat().st_size % 2:
                    shutil.rmtree(copy / "checkpoint.previous", ignore_errors=True)
                again = Run(copy, job.trainer(), job.model.save, Origin(data=job.data.fingerprint))
                return again.resume()
            return run_rows(copy)

        return run

    for name, kind in (
        ("checkpoint/state.json", "json"),
        ("checkpoint/tensors.safetensors", "binary"),
        ("metrics.jsonl", "jsonl"),
        ("samples.jsonl", "jsonl"),
        ("updates.csv", "text"),
        ("config.toml", "toml"),
    ):
        if (whole / name).exists():
            label = name.replace("/", "-").replace(".", "-")
            yield Target(f"run-folder-{label}", kind, ".bin", (whole / name).read_bytes(), resume(name))


def _reads(task: str, **keys: Any) -> Callable[[Path], object]:
    """Reads a training file as `unrolled train` does, and makes what is learnt before training."""

    def run(path: Path) -> object:
        config = api.configure(
            task, [], {"data.train": str(path), **{k.replace("__", "."): v for k, v in keys.items()}}
        )
        read = TASKS[task]()
        examples = read.read(config)
        return read.make_assets(config, examples)

    return run


def _table_targets(data: Path) -> Iterator[Target]:
    mood, pairs, spans = (data / "mood.tsv").read_bytes(), (data / "numbers.tsv").read_bytes(), (data / "spans.txt")
    rows = [line.split("\t") for line in mood.decode().splitlines()]
    csv = "label,text\n" + "".join(f'"{label}","{text}, said ""she"""\n' for label, text in rows)
    records = "".join(json.dumps({"label": label, "text": text}) + "\n" for label, text in rows)
    yield Target("train-generate-txt", "text", ".txt", (data / "book.txt").read_bytes(), _reads("generate"))
    packed = gzip.compress((data / "book.txt").read_bytes(), mtime=0)
    yield Target("train-generate-gz", "binary", ".txt.gz", packed, _reads("generate"))
    yield Target(
        "train-generate-bpe", "text", ".txt", (data / "book.txt").read_bytes(), _reads("generate", data__level="bpe")
    )
    yield Target("train-classify-tsv", "text", ".tsv", mood, _reads("classify"))
    yield Target("train-classify-csv", "text", ".csv", csv.encode(), _reads("classify"))
    yield Target("train-classify-jsonl", "jsonl", ".jsonl", records.encode(), _reads("classify"))
    table = pa.table({"label": [label for label, _ in rows], "text": [text for _, text in rows]})
    yield Target("train-classify-parquet", "binary", ".parquet", parquet(table), _reads("classify"))
    labelled = npz(frames=np.arange(36, dtype=np.float32).reshape(6, 3, 2), labels=np.array(["a", "b"] * 3))
    yield Target("train-classify-npz", "zip", ".npz", labelled, _reads("classify"))
    labelled = npz(frames=np.ones((8, 2), np.float32), labels=np.array(["a", "b"] * 4), lengths=np.array([3, 5]))
    yield Target("train-tag-npz", "zip", ".npz", labelled, _reads("tag"))
    steps = b"session,x,y,label\n" + b"".join(
        b"%d,%d.5,-%d,%s\n" % (i // 3, i, i, b"ab"[i % 2 : i % 2 + 1]) for i in range(9)
    )
    yield Target("train-tag-csv", "text", ".csv", steps, _reads("tag"))
    yield Target("train-translate-tsv", "text", ".tsv", pairs, _reads("translate"))
    both = "".join(
        json.dumps(dict(zip(("source", "target"), r.split("\t"), strict=True))) + "\n"
        for r in pairs.decode().splitlines()
    )
    yield Target("train-translate-jsonl", "jsonl", ".jsonl", both.encode(), _reads("translate"))
    yield Target("train-tag-columns", "text", ".txt", spans.read_bytes(), _reads("tag"))
    words = [line.split() for line in spans.read_text().split("\n\n")[0].splitlines()]
    some = [words[:size] for size in (2, 4, 6, 8)]
    conllu = "".join(
        "# text = x\n" + "".join(f"{i}\t{w}\t_\t{t}\t_\t_\t_\t_\t_\t_\n" for i, (w, t) in enumerate(one, 1)) + "\n"
        for one in some
    )
    yield Target("train-tag-conllu", "text", ".conllu", conllu.encode(), _reads("tag"))
    columns = {"tokens": [[w for w, _ in one] for one in some], "tags": [[t for _, t in one] for one in some]}
    tagged = "".join(
        json.dumps({"tokens": w, "tags": t}) + "\n" for w, t in zip(columns["tokens"], columns["tags"], strict=True)
    )
    yield Target("train-tag-jsonl", "jsonl", ".jsonl", tagged.encode(), _reads("tag"))
    yield Target("train-tag-parquet", "binary", ".parquet", parquet(pa.table(columns)), _reads("tag"))
    yield Target("train-forecast-csv", "text", ".csv", (data / "waves.csv").read_bytes(), _reads("forecast"))
    numbers = pa.table({"a": waves()[:, 0], "b": waves()[:, 1]})
    yield Target("train-forecast-parquet", "binary", ".parquet", parquet(numbers), _reads("forecast"))
    rows_json = "".join(json.dumps({"a": a, "b": b}) + "\n" for a, b in waves().tolist())
    yield Target("train-forecast-jsonl", "jsonl", ".jsonl", rows_json.encode(), _reads("forecast"))
    yield Target("train-forecast-npz", "zip", ".npz", npz(inputs=waves()[None]), _reads("forecast"))


def _media_targets(data: Path, models: Path) -> Iterator[Target]:
    heard, seen = api.load(models / "recognize.safetensors"), api.load(models / "recognize-transformer.safetensors")
    told = api.load(models / "caption.safetensors")

    def hear(path: Path) -> object:
        list(audio_blocks(Medium(path), RATE, 0.1))
        return audio_facts(Medium(path)), heard.predict(str(path))

    for suffix, form in ((".wav", "WAV"), (".flac", "FLAC"), (".ogg", "OGG")):
        raw = io.BytesIO()
        soundfile.write(raw, tone("ab"), RATE, format=form)
        yield Target(f"audio{suffix.replace('.', '-')}", "binary", suffix, raw.getvalue(), hear)
    for suffix, form in ((".png", "PNG"), (".jpg", "JPEG"), (".gif", "GIF"), (".tif", "TIFF"), (".bmp", "BMP")):
        raw = io.BytesIO()
        Image.fromarray(marks("ab")).save(raw, form)
        yield Target(
            f"picture{suffix.replace('.', '-')}",
            "binary",
            suffix,
            raw.getvalue(),
            lambda path: both(lambda: seen.predict(str(path)), lambda: told.predict(str(path))),
        )
    said = [frames(text) for text in ("ab", "ba", "cab", "a")]
    recognized = npz(
        frames=np.concatenate(said), texts=np.array(["ab", "ba", "cab", "a"]), lengths=[len(one) for one in said]
    )
    yield Target("train-recognize-npz", "zip", ".npz", recognized, _reads("recognize"))
    manifest = "".join(f"{data / 'sounds' / f'train{i}.wav'}\tab c\n" for i in range(4))
    yield Target("train-recognize-tsv", "text", ".tsv", manifest.encode(), _reads("recognize"))
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as file:
        for number in range(3):
            file.writestr(f"{number}.png", (data / "pictures" / f"{number}.png").read_bytes())
    captions = data / "captions.tsv"
    captions.write_text("0.png\ta bar above\n1.png\ta bar amid\n2.png\ta bar below\n" * 2)

    def caption(path: Path) -> object:
        config = api.configure("caption", [], {"data.train": str(captions), "data.images": str(path)})
        return TASKS["caption"]().read(config)

    yield Target("train-caption-zip", "zip", ".zip", packed.getvalue(), caption)
    named = npz(
        pictures=np.random.default_rng(1).integers(0, 256, (3, 16, 16, 3)).astype(np.uint8),
        names=np.array(["0.png", "1.png", "2.png"]),
    )
    yield Target("train-caption-npz", "zip", ".npz", named, caption)
    regions = npz(regions=np.arange(60, dtype=np.float32).reshape(3, 4, 5), names=np.array(["0.png", "1.png", "2.png"]))
    yield Target("train-caption-regions", "zip", ".npz", regions, caption)
    table = "".join(f"{data / 'pictures' / f'{i}.png'}\ta bar above\n" for i in range(4))
    yield Target("train-caption-tsv", "text", ".tsv", table.encode(), _reads("caption"))


def _run_targets(data: Path, models: Path) -> Iterator[Target]:
    """Files and texts that a model is asked about."""
    texts = "one fine two\n3 and 4 make 7\nÁda met İstanbul 猫だ ﬁ \U0001f469\u200d\U0001f680\n"
    for kind, suffix, seed, damage in (
        ("classify", ".txt", texts.encode(), "text"),
        ("classify", ".csv", b"id,text\n1,one fine two\n2,poor\n", "text"),
        ("classify", ".jsonl", b'{"text": "one fine two"}\n{"text": "poor"}\n', "jsonl"),
        ("translate-luong", ".txt", b"3 5 7\n8 3\n", "text"),
        ("tag-crf", ".txt", (data / "spans.txt").read_bytes()[:200], "text"),
        ("tag-crf", ".conllu", b"1\tAda\t_\t_\t_\t_\t_\t_\t_\t_\n2\tmet\t_\t_\t_\t_\t_\t_\t_\t_\n", "text"),
        ("tag-crf", ".jsonl", b'{"tokens": ["Ada", "met"]}\n', "jsonl"),
        ("forecast", ".csv", (data / "waves.csv").read_bytes(), "text"),
        ("forecast-npz", ".npz", npz(inputs=waves(20)[None]), "zip"),
    ):
        model = _model_of_arrays(data) if kind == "forecast-npz" else api.load(models / f"{kind}.safetensors")

        def run(path: Path, model: Any = model) -> object:
            return list(model.runner.run(Request(files=[str(path)], format="jsonl")))

        yield Target(f"run-{kind}{suffix.replace('.', '-')}", damage, suffix, seed, run)
    for kind in ("generate-lstm", "classify", "tag-crf", "translate-luong"):
        model = api.load(models / f"{kind}.safetensors")

        def ask(path: Path, model: Any = model, kind: str = kind) -> object:
            text = path.read_bytes().decode("utf-8", "surrogateescape" if path.stat().st_size % 2 else "surrogatepass")
            options: dict[str, Any] = {"max_tokens": 4} if kind.startswith("generate") else {}
            answer = model.predict(text[:500], **options)
            return answer, model.log_prob([text[:500]]) if kind.startswith("generate") else None

        def asked(path: Path, ask: Any = ask) -> object:
            try:
                return ask(path)
            except UnicodeDecodeError as error:  # it is the target that reads here
                raise UserError(str(error)) from None

        yield Target(f"prompt-{kind}", "text", ".txt", texts.encode(), asked)
    recognizer = api.load(models / "recognize.safetensors")

    def listen(path: Path) -> object:
        return list(recognizer.runner.run(Request(files=[str(path)], format="jsonl")))

    raw = io.BytesIO()
    soundfile.write(raw, tone("ab"), RATE, format="WAV")
    yield Target("run-recognize-wav", "binary", ".wav", raw.getvalue(), listen)


def _model_of_arrays(data: Path) -> Any:
    np.savez(data / "waves.npz", inputs=waves()[None])
    _, _, keys, _ = KINDS["forecast"]
    return TrainingJob(api.configure("forecast", [], {**keys, "data.train": str(data / "waves.npz")})).model


def _search_targets(folder: Path, data: Path) -> Iterator[Target]:
    path = folder / "tiny.arpa"
    if not path.exists():
        NGram.train(["the cat sat", "the cat ran", "a dog sat", "a dog ran home", "the dog"], order=3).save(path)

    def both(path: Path) -> object:
        return agree(lambda backend: _arpa_facts(NGram.load(path, backend=backend)))

    yield Target("arpa", "text", ".arpa", path.read_bytes(), both)
    yield Target("arpa-gz", "binary", ".arpa.gz", gzip.compress(path.read_bytes(), mtime=0), both)
    labels, lexicon = data / "labels.txt", data / "lexicon.txt"
    labels.write_text("<blank>\n|\nc\na\nt\nd\no\ng\n")
    lexicon.write_text("cat c a t\ndog d o g\ncat c a a t\n")
    random = np.random.default_rng(1)
    table = np.log(random.dirichlet(np.ones(8), size=12)).astype(np.float32)
    posteriors = data / "posteriors.npz"
    np.savez(posteriors, one=table, two=table[:5])

    def decode(which: str) -> Callable[[Path], object]:
        def run(path: Path) -> object:
            files = {"labels": labels, "lexicon": lexicon, "lm": folder / "tiny.arpa", "posteriors": posteriors}
            files[which] = path
            decoder = decoder_from_files(files["labels"], files["lexicon"], files["lm"], beam=20)
            return decoder.decode_batch(list(read_posteriors(files["posteriors"]).values()), 3)

        return run

    yield Target("decode-labels", "text", ".txt", labels.read_bytes(), decode("labels"))
    yield Target("decode-lexicon", "text", ".txt", lexicon.read_bytes(), decode("lexicon"))
    yield Target("decode-lm", "text", ".arpa", path.read_bytes(), decode("lm"))
    yield Target("decode-posteriors", "zip", ".npz", posteriors.read_bytes(), decode("posteriors"))
    yield Target("decode-posteriors-npy", "npy", ".npy", npy(table), decode("posteriors"))
    text = b"the cat sat\nthe cat ran\na dog sat\n"
    yield Target(
        "lm-train",
        "text",
        ".txt",
        text,
        lambda path: agree(lambda b: _arpa_facts(NGram.train(path, order=2, backend=b))),
    )
    model = NGram.load(folder / "tiny.arpa")
    yield Target("lm-eval", "text", ".txt", text, lambda path: model.evaluate(path))


def _other_targets(folder: Path, data: Path) -> Iterator[Target]:
    vectors = Vectors(["the", "cat", "sat", "dog"], np.random.default_rng(1).standard_normal((4, 5)).astype(np.float32))

    def look(path: Path) -> object:
        read = Vectors.read(path)
        return read.nearest(read.words[0], 2)

    for suffix, kind in ((".txt", "text"), (".npz", "zip")):
        file = folder / f"vectors{suffix}"
        file.unlink(missing_ok=True)
        vectors.write(file)
        yield Target(f"vectors{suffix.replace('.', '-')}", kind, suffix, file.read_bytes(), look)
    binary = b"4 5\n" + b"".join(f"{w} ".encode() + vectors[w].tobytes() + b"\n" for w in vectors.words)
    yield Target("vectors-bin", "binary", ".bin", binary, look)
    questions = b": animals\nthe cat sat dog\ncat the dog sat\n"
    yield Target("analogies", "text", ".txt", questions, lambda path: vectors.analogies(path))
    config = write_toml(api.configure("generate"), comments=False).encode()
    yield Target("config-toml", "toml", ".toml", config, lambda path: api.configure(path))
    recipe = config + b'[recipe]\ntrain = "x"\nmetric = "accuracy"\npublished = 1.0\n'
    yield Target("recipe-toml", "toml", ".toml", recipe, lambda path: read_recipe(read_toml(path)))
    yield Target("weights-torch", "zip", ".pt", torch_file(), take)
    yield Target("weights-safetensors", "binary", ".safetensors", safetensors_file(), take)
    yield Target("weights-keras", "zip", ".keras", keras_file(), run_keras)
    yield from _cache_targets(folder, data)


def _cache_targets(folder: Path, data: Path) -> Iterator[Target]:
    whole, book = folder / "cache", data / "book.txt"
    tokenizer = api.load(folder / "models" / "generate-lstm.safetensors").assets
    cache = TokenCache(whole, processes=1)
    text, _ = cache.text(book)
    cache.tokenizer(text, {"level": "char"}, lambda pieces: tokenizer)
    expected = np.array(cache.ids(text, tokenizer))
    for place in sorted(whole.rglob("*")):
        if place.suffix not in (".json", ".bin"):
            continue
        inside = place.relative_to(whole)

        def run(path: Path, inside: Path = inside) -> object:
            copy = path.parent / "copy"
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(whole, copy)
            shutil.copy(path, copy / inside)
            damaged = TokenCache(copy, processes=1)
            read, _ = damaged.text(book)
            damaged.tokenizer(read, {"level": "char"}, lambda pieces: tokenizer)
            if inside.parts[0] == "tokens":  # it would be made again by a process: slow, and tested elsewhere
                from unrolled.data.batching.token_cache import _problem, _smallest_type

                if _problem(copy / inside.parent, _smallest_type(len(tokenizer))) is not None:
                    return None
            ids = damaged.ids(read, tokenizer)
            assert np.array_equal(ids, expected), "the cache gave other tokens"
            return len(ids)

        label = f"{inside.parts[0]}{'' if len(inside.parts) == 2 else '-' + inside.stem}"
        yield Target(
            f"token-cache-{label}", "json" if place.suffix == ".json" else "binary", ".bin", place.read_bytes(), run
        )


def _arpa_facts(model: NGram) -> object:
    sentence = ["the", "cat", "sat", "dog", "x"]
    scores = [round(one.log_prob, 3) for one in model.scores(sentence)]
    return model.order, model.counts, scores
