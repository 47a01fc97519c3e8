"""Parts of speech of UD English EWT, and CoNLL-2000 chunks: scores of published taggers, reproduced.

    python recipes/tagging.py --data FOLDER [--only ewt,conll2000] [--seeds 0,1,2] [--device cuda] [--out FOLDER]
        [--set KEY=VALUE ...]

FOLDER, by default $UNROLLED_DATA, holds ud_english_ewt (en_ewt-ud-train.conllu.gz, en_ewt-ud-dev.conllu, UD 2.16),
conll2000 (train.txt.gz) and glove (glove.6B.100d.subset.npz, words.txt). Every run writes OUT/tagging-PART-SEED.json
when it is done, and is not repeated: the script can be stopped, and several can share the work with --only and --seeds.
At the end all existing runs become a table and OUT/tagging.json.

The scored sentences choose nothing: there is one evaluation, after the last update. CoNLL-2000's own test set is not in
FOLDER: a fixed tenth of the training sentences is held out, and no sentence is on both sides.
"""

from __future__ import annotations

import gzip
from pathlib import Path

from common import Files, Part, main

from unrolled.data import held_out
from unrolled.data.readers.tagged.columns import ColumnsFile

DATA = (
    "ud_english_ewt/en_ewt-ud-train.conllu.gz",
    "ud_english_ewt/en_ewt-ud-dev.conllu",
    "conll2000/train.txt.gz",
    "glove/glove.6B.100d.subset.npz",
    "glove/words.txt",
)


def ewt(data: Path, work: Path) -> Files:
    folder = data / "ud_english_ewt"
    return folder / "en_ewt-ud-train.conllu.gz", folder / "en_ewt-ud-dev.conllu"


def conll2000(data: Path, work: Path) -> Files:
    """The training file cut in two by whole sentences."""
    file = ColumnsFile.parse(gzip.decompress((data / "conll2000" / "train.txt.gz").read_bytes()).decode().split("\n"))
    parts = held_out([sentence.words for sentence in file.sentences()], 0.1)
    paths = work / "train.txt", work / "test.txt"
    for path, rows in zip(paths, parts, strict=True):
        path.write_text("\n".join("".join(file.lines[i] + "\n" for i in file.rows[row]) for row in rows))
    return paths


PARTS = {
    "ewt": Part(
        "UD English EWT 2.16, UPOS, dev, GloVe 100",
        "tag",
        ewt,
        {"accuracy": 0.950},
        "bi-LSTM with letters about 95 (Plank 2016, UD 1.2); BERT 97.4",
        vectors=True,
    ),
    "ewt-plain": Part("the same without vectors: the defaults of `unrolled train tag`", "tag", ewt, {"accuracy": None}),
    "conll2000": Part(
        "CoNLL-2000 chunks, a tenth of train held out, parts of speech given, GloVe 100",
        "tag",
        conll2000,
        {"span_f1": 0.940},
        "BiLSTM-CRF 94.46 (Huang 2015), on the test set",
        {"data.feature_columns": ["2"]},
        vectors=True,
    ),
    "conll2000-plain": Part("the same from words alone, no vectors: the defaults", "tag", conll2000, {"span_f1": None}),
}

if __name__ == "__main__":
    main("tagging", __doc__, PARTS)
