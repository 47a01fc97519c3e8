"""The compiled extension (native/bind/module.cpp). Jobs take tensors as addresses, `tensor.data_ptr()`."""

import builtins
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

CELLS: dict[int, tuple[str, int, bool, bool, bool]]  # kind → name, gates, memory, candidate, two products

class ScanJob:
    kind: int
    batch: int
    steps: int
    features: int
    hidden: int
    width: int
    reverse: bool
    peephole_previous: bool
    narrow: bool
    save: bool
    resets_batch_stride: int
    resets_step_stride: int
    gates_x: int
    weight_ih: int
    weight_hh: int
    bias_ih: int
    bias_hh: int
    norm_hh: int
    weight_peephole: int
    weight_hr: int
    norm_c: int
    norm_c_bias: int
    hidden_mask: int
    lengths: int
    order: int
    active: int
    resets: int
    gates: int
    seen: int
    candidate: int
    raw: int
    stats: int
    shown: int
    d_gates_x: int
    d_weight_ih: int
    d_weight_hh: int
    d_bias_ih: int
    d_bias_hh: int
    d_norm_hh: int
    d_weight_peephole: int
    d_weight_hr: int
    d_norm_c: int
    d_norm_c_bias: int
    h_0: int
    reset_h: int
    h_n: int
    h_entering: int
    h_left: int
    d_h_n: int
    d_h_0: int
    d_reset_h: int
    d_probe_h: int
    c_0: int
    reset_c: int
    c_n: int
    c_entering: int
    c_left: int
    d_c_n: int
    d_c_0: int
    d_reset_c: int
    d_probe_c: int
    keep_rate_h: float
    keep_rate_c: float
    def set_keep_h(self, data: int, batch_stride: int, step_stride: int, /) -> None: ...
    def set_keep_c(self, data: int, batch_stride: int, step_stride: int, /) -> None: ...
    def set_x(self, data: int, batch_stride: int, step_stride: int, /) -> None: ...
    def set_output(self, data: int, batch_stride: int, step_stride: int, /) -> None: ...
    def set_d_output(self, data: int, batch_stride: int, step_stride: int, /) -> None: ...
    def set_d_x(self, data: int, batch_stride: int, step_stride: int, /) -> None: ...
    def forward(self, threads: int, /) -> None: ...
    def backward(self, threads: int, /) -> None: ...

class AttentionJob:
    kind: int
    batch: int
    steps: int
    positions: int
    hidden: int
    key_size: int
    value_size: int
    context_size: int
    heads: int
    feed: int
    luong: bool
    narrow: bool
    scale: float
    weight_hh: int
    bias_hh: int
    weight_feed: int
    weight_query: int
    bias_query: int
    weight_out: int
    bias_out: int
    looked: int
    head_weights: int
    d_looked: int
    vector: int
    weight_mix: int
    bias_mix: int
    keys: int
    values: int
    mask: int
    hidden_mask: int
    lengths: int
    order: int
    active: int
    h_0: int
    c_0: int
    fed_0: int
    h_n: int
    c_n: int
    fed_n: int
    output: int
    context: int
    weights: int
    gates: int
    h_entering: int
    seen: int
    c_entering: int
    candidate: int
    hidden_rows: int
    fed_rows: int
    query_rows: int
    mixed: int
    d_h_n: int
    d_c_n: int
    d_fed_n: int
    d_h_0: int
    d_c_0: int
    d_fed_0: int
    d_gates: int
    d_candidate: int
    d_seen: int
    d_scores: int
    d_query: int
    d_mixed: int
    d_keys: int
    d_vector: int
    def set_gates_x(self, data: int, batch_stride: int, step_stride: int, /) -> None: ...
    def set_feed_mask(self, data: int, batch_stride: int, step_stride: int, /) -> None: ...
    def set_mix_mask(self, data: int, batch_stride: int, step_stride: int, /) -> None: ...
    def set_d_output(self, data: int, batch_stride: int, step_stride: int, /) -> None: ...
    def set_d_context(self, data: int, batch_stride: int, step_stride: int, /) -> None: ...
    def set_d_weights(self, data: int, batch_stride: int, step_stride: int, /) -> None: ...
    def forward(self, threads: int, /) -> None: ...
    def backward(self, threads: int, /) -> None: ...
    def look(self, threads: int, /) -> None: ...

class Stepper:
    def __init__(self, weights: int, /) -> None: ...
    def add_layer(
        self,
        kind: int,
        features: int,
        hidden: int,
        width: int,
        peephole_previous: bool,
        keep_h: float,
        keep_c: float,
        tensors: dict[str, tuple[int, int]],
        /,
    ) -> None: ...
    def look_at(self, tensors: list[Tensor], seen: list[int], /) -> None: ...
    def step(self, x: Tensor, state: tuple[Tensor, ...], /) -> tuple[Tensor, tuple[Tensor, ...]] | None: ...

class Stream:
    def __init__(self, stepper: Stepper, batch: int, /) -> None: ...
    def feed(self, x: Tensor, /) -> Tensor | None: ...
    def state(self) -> tuple[Tensor, ...]: ...
    def set_state(self, state: tuple[Tensor, ...], /) -> bool: ...

class NGramModel:
    def __init__(self, order: int, /) -> None: ...
    def add_unigram(self, word: str, prob: float, backoff: float, /) -> bool: ...
    def add(self, words: list[int], prob: float, backoff: float, /) -> bool: ...
    def finish_building(self) -> None: ...
    def start(self) -> int: ...
    def score(self, state: int, word: int, /) -> tuple[float, int]: ...
    def finish(self, state: int, /) -> float: ...
    def score_words(self, state: int, words: list[int], /) -> tuple[list[tuple[float, int]], int]: ...
    def score_text(self, text: builtins.bytes, /) -> tuple[builtins.bytes, builtins.bytes, builtins.bytes]: ...
    def find(self, word: str, /) -> int: ...
    def word(self, number: int, /) -> str: ...
    def ngrams(self, order: int, /) -> list[tuple[list[int], float, float]]: ...
    def count(self, order: int, /) -> int: ...
    @property
    def order(self) -> int: ...
    @property
    def word_count(self) -> int: ...
    @property
    def has_unknown(self) -> bool: ...
    @property
    def bytes(self) -> int: ...

class ArpaReader:
    def __init__(self, most: int, /) -> None: ...
    def feed(self, piece: builtins.bytes, /) -> None: ...
    def finish(self) -> NGramModel: ...

class KneserNey:
    def __init__(self, order: int, prune: list[int], memory: int, folder: str, /) -> None: ...
    def feed(self, piece: builtins.bytes, /) -> None: ...
    def adjust(self) -> list[list[int]]: ...
    def estimate(self, discounts: list[list[float]], /) -> None: ...
    def next(self) -> builtins.bytes: ...
    def model(self) -> NGramModel: ...
    @property
    def counts(self) -> list[int]: ...
    @property
    def sentences(self) -> int: ...
    @property
    def longest(self) -> int: ...

class ArpaWriter:
    def __init__(self, model: NGramModel, /) -> None: ...
    def next(self) -> builtins.bytes: ...

def mix_ngrams(models: list[NGramModel], weights: list[float], /) -> NGramModel: ...
def connect(tensor_type: type[Tensor], table: object, /) -> bool: ...
def sort_by_length(lengths: int, batch: int, steps: int, order: int, active: int, /) -> None: ...
def isa() -> str: ...
def isas() -> list[str]: ...
def threading() -> str: ...
def set_scratch_nan(wanted: bool, /) -> None: ...
def ctc_align(
    log_probs: int,
    steps: int,
    labels: int,
    step_stride: int,
    blank: int,
    target: int,
    length: int,
    path: int,
    at_once: int = ...,
) -> float: ...
def narrow() -> bool: ...

class CtcJob:
    batch: int
    steps: int
    labels: int
    blank: int
    batch_stride: int
    step_stride: int
    log_probs: int
    targets: int
    offsets: int
    target_lengths: int
    input_lengths: int
    losses: int
    gradient: int
    def run(self, threads: int, /) -> None: ...

class ApartProductJob:
    count: int
    rows: int
    columns: int
    depth: int
    x: int
    x_next: int
    x_row: int
    w: int
    w_next: int
    upright: bool
    bias: int
    out: int
    def run(self, threads: int, /) -> None: ...

class ApartAttentionJob:
    batch: int
    heads: int
    queries: int
    positions: int
    size: int
    q: int
    q_batch: int
    q_head: int
    q_row: int
    k: int
    k_batch: int
    k_head: int
    k_row: int
    v: int
    v_batch: int
    v_head: int
    v_row: int
    mask: int
    mask_batch: int
    mask_row: int
    causal: bool
    scale: float
    out: int
    weights: int
    def run(self, threads: int, /) -> None: ...

class TopJob:
    rows: int
    size: int
    best: int
    row_stride: int
    blocked_stride: int
    scores: int
    blocked: int
    values: int
    tokens: int
    totals: int
    def run(self, threads: int, /) -> None: ...

class NarrowScoresJob:
    rows: int
    size: int
    depth: int
    x_stride: int
    scores_stride: int
    x: int
    weight: int
    bias: int
    scores: int
    def run(self, threads: int, /) -> None: ...

class CrossEntropyJob:
    rows: int
    size: int
    row_stride: int
    scores: int
    targets: int
    losses: int
    column_sums: int
    narrow: bool
    gradient: bool
    smoothing: float
    def run(self, threads: int, /) -> None: ...

class Hotwords:
    begins: list[int]
    labels: list[int]
    targets: list[int]
    shorter: list[int]
    partial: list[float]
    complete: list[float]
    final: list[float]
    start: int
    most: float
    def __init__(self) -> None: ...
    def prepare(self) -> None: ...

class PrefixSearch:
    def __init__(
        self, labels: int, blank: int, beam: int, margin: float, add: bool, hotwords: Hotwords | None = None
    ) -> None: ...
    def feed(self, frames: int, count: int, labels: int, /) -> None: ...
    def best(self, count: int, /) -> list[tuple[float, list[int]]]: ...

class Lexicon:
    def size(self) -> int: ...
    def bytes(self) -> int: ...

class WordModel: ...

class Dictionary:
    def bytes(self) -> int: ...

class DictionaryOptions:
    labels: int
    blank: int
    doubles: bool
    separator: int
    beam: int
    per_node: int
    margin: float
    sum: bool
    recombine: bool
    look_ahead: bool
    lm_weight: float
    word_bonus: float
    unknown_penalty: float

class DictionarySearch:
    def __init__(
        self, dictionary: Dictionary, options: DictionaryOptions, hotwords: Hotwords | None = None
    ) -> None: ...
    def feed(self, frames: int, count: int, labels: int, /) -> None: ...
    def best(
        self, count: int, /
    ) -> list[tuple[float, bool, list[int], list[int], list[int], list[int], list[int]]]: ...

def make_lexicon(labels: int, starts: int, words: int, count: int, share_ends: bool, /) -> Lexicon: ...
def make_dictionary(lexicon: Lexicon, lm: WordModel | None, words: list[str]) -> Dictionary: ...
def ngram_word_model(model: NGramModel, /) -> WordModel: ...
def uniform_word_model(words: int, /) -> WordModel: ...
def feed_all(searches: list[DictionarySearch], frames: list[tuple[int, int, int]], threads: int, /) -> None: ...
def change_lines(
    given: Sequence[NDArray[np.uint8]],
    seeds: NDArray[np.uint64],
    lengths: NDArray[np.int64],
    warp: float,
    slant: float,
    width: float,
    thickness: float,
    blur: float,
    noise: float,
    scale: float,
    /,
) -> NDArray[np.float32]: ...
