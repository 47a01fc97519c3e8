"""A training job: a config made ready to train, and the run that it drives."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save

from unrolled.config import (
    FILE_KEYS,
    apply,
    check_keys,
    data_paths,
    in_memory,
    keys,
    title_of,
    with_absolute_paths,
    write_toml,
)
from unrolled.data import Batch
from unrolled.data.batching.shapes import ahead_of_gpu
from unrolled.data.memory.held import check_held
from unrolled.errors import UserError
from unrolled.jobs.driving import Drive
from unrolled.jobs.load import load_model
from unrolled.jobs.target import Target, find_target
from unrolled.model import Model, current_versions, find_file
from unrolled.model_file import is_model_file
from unrolled.nn.state_files import take_weights
from unrolled.tasks import TASKS, Data, Task
from unrolled.tasks.contract import Training
from unrolled.training import Origin, Run, Trainer, TrainSettings, hash_of, new_folder
from unrolled.training.changes import END, check_changes
from unrolled.training.checkpoint import write_atomically
from unrolled.training.devices import (
    device_of_rank,
    pick_device,
    threads_of_rank,
)
from unrolled.training.folder import (
    CONFIG,
    INIT,
    LOCK,
    STARTED,
    check_free,
    check_run,
    clear,
    locked,
)
from unrolled.training.lanes import own_random_numbers
from unrolled.training.meeting import NCCL, join, remember_folder, remembered_folder
from unrolled.training.place import RankPlace
from unrolled.training.precision import pick_precision
from unrolled.training.ranks import Ranks, check_same
from unrolled.training.watching import Callback, WatchedRun, Watchers, trackers


class TrainingJob:
    """A config made ready to train: data read, vocabulary made, network built."""

    def __init__(
        self,
        config: Any,
        init: str | Path | None = None,
        task: Task | None = None,
        *,
        init_names: Mapping[str, str] | None = None,
        checked: bool = False,
        read: Callable[[Any], Data] | None = None,
        draw: bool = True,
    ) -> None:
        """checked: the config is that of a run, and keys that do nothing stay as they are.

        init_names: for `init` of another program, the names of its modules in the network; see `take_weights`.
        read: gives the data of a config, in place of the task's own. draw: the run gets its curves as a picture.
        """
        settings = config.train
        self.trackers, self.draw = trackers(settings.trackers), draw
        if task is not None and task.name != config.task:
            raise UserError(f"The config is for {config.task}, the task is {task.name}.", "Use those of one task.")
        self.device, self.ranks = _machine(settings)
        config = apply(config, {"train.precision": pick_precision(settings.precision, self.device)})
        self.task = task or TASKS[config.task]()
        self.init = find_file(init) if init is not None else None
        foreign = self.init is not None and not is_model_file(self.init)
        if init_names and not foreign:
            raise UserError("init_names are for weights that another program wrote.", "Leave them out.")
        start = load_model(self.init, task=self.task) if self.init is not None and not foreign else None
        decided = {} if start is None else self.task.architecture(start.config)
        self.config = config if start is None else _shaped(config, decided)
        if not checked:
            check_keys(self.config, {"init": start is not None}, data_read=False, decided=list(decided))
        check_held(data_paths(self.config).values())
        data: Data = (read or self.task.read)(self.config)
        self.data = replace(data, source=title_of(data.source))
        torch.manual_seed(settings.seed)
        self.assets = self.task.make_assets(self.config, self.data, init=start.assets if start else None)
        if not checked:
            facts = {"init": start is not None, **self.task.facts(self.config, self.assets)}
            check_keys(self.config, facts, decided=list(decided))
        check_same(self.ranks, self._facts())
        self.traits = self.task.traits(self.config, self.assets)
        self.goal = self.traits.goal
        network = self.task.build(self.config, self.assets)
        if start is not None:
            self.task.transfer(start, network, self.assets)
        else:
            self.task.initialize(network, self.config, self.assets, self.data)
        self.taken = take_weights(network, self.init, init_names) if self.init is not None and foreign else None
        network = network.to(self.device)
        self.ranks.copy_from_first(list(network.state_dict().values()))
        self.model = Model(
            self.task,
            self.config,
            self.assets,
            network,
            versions=current_versions(),
            data=_origin(self.config, self.data),
        )

    def _facts(self) -> dict[str, str]:
        """Facts in which all processes must agree, by the names that users know."""
        if self.ranks.alone:
            return {}
        paths = dict.fromkeys(data_paths(self.config), "")
        plain = apply(self.config, {**paths, "train.device": "auto", "train.threads": None})
        assets = json.dumps(self.task.assets_to_json(self.assets), sort_keys=True)
        return {
            "data": hash_of(self.data.fingerprint.encode(), self.data.contents.encode()),
            "config": plain.model_dump_json(),
            "vocabulary": hash_of(assets.encode()),
            "versions": json.dumps(current_versions(), sort_keys=True),
        }

    def trainer(self) -> Trainer:
        task, model, config = self.task, self.model, self.config
        batches = task.batches(config, self.assets, self.data.train, training=True)
        valid = task.batches(config, self.assets, self.data.valid, training=False)

        def loss(batch: Batch, state: Any) -> Any:
            progress = trainer.progress
            training = Training(config.train, trainer.done, progress.step, progress.epoch)
            return task.loss(model.network, batch, state, training)

        trainer = Trainer(
            model.network,
            loss,
            batches,
            config.train,
            traits=self.traits,
            evaluate=lambda: task.evaluate(model, valid),
            device=self.device,
            ranks=self.ranks,
        )
        own_random_numbers(config.train.seed, self.ranks)
        if self.device.type == "cuda":
            trainer.feed_gpu(ahead_of_gpu(batches, self.traits.padding), self.traits.eager)
        return trainer

    def try_batch(self, key: str, size: int) -> None:
        """Compute the gradients of one batch of another size, for its use of memory."""
        TrainingJob(apply(self.config, {key: size}), task=self.task, checked=True).trainer().gradients()

    def run(self, out: Path | None, *, quiet: bool = False, callbacks: Sequence[Callback] = ()) -> Model:
        """Train in a new run folder and return the best model."""
        trainer = self.trainer()
        folder = Path(self.ranks.from_first(lambda: str(new_folder(out, self.task.name))))
        with self._locked(folder):
            remember_folder(str(folder.absolute()), first=self.ranks.is_first)
            if self.ranks.is_first:
                check_free(folder)  # another process may have taken it
                clear(folder, STARTED - {LOCK})
                if self.init is not None:  # for a restart if the run is killed before its first checkpoint
                    write_atomically(folder / INIT, self._initial())
                self._write_config(folder)
            run = self._run(folder, trainer)
            return Drive(self, run, self._watchers(run, callbacks), quiet=quiet).to_the_end([])

    def _locked(self, folder: Path) -> AbstractContextManager[None]:
        return locked(folder) if self.ranks.is_first else nullcontext()

    def resume(
        self,
        folder: Path,
        old: Any | None = None,
        changes: Sequence[str] = (),
        *,
        quiet: bool = False,
        callbacks: Sequence[Callback] = (),
    ) -> Model:
        """Continue a run; `old` is its config before changes."""
        trainer = self.trainer()
        run = self._run(folder, trainer)
        before = None if old is None else trainer.total_of(old.train)
        notes = run.resume(before)
        if before == trainer.total_steps and any(line.startswith(END) for line in changes):
            notes.append(
                f"It still ends after {trainer.total_steps} updates: {' and '.join(END)} are both set, "
                "and the earlier end counts."
            )
        if changes:
            self._write_config(folder, f"Changed at step {trainer.progress.step}: {'; '.join(changes)}.")
        if before not in (None, trainer.total_steps) and trainer.progress.step:
            run.checkpoint()  # saves a reset patience before the next checkpoint
        watchers = self._watchers(run, callbacks, resumed=True)
        return Drive(self, run, watchers, quiet=quiet).to_the_end([*changes, *notes])

    def _initial(self) -> bytes:
        """The file to start from; weights of another program under their names in the network."""
        assert self.init is not None
        if self.taken is None:
            return self.init.read_bytes()
        weights = self.model.network.state_dict()
        return save({name: weights[name].detach().cpu().clone().contiguous() for name in self.taken.taken})

    def _run(self, folder: Path, trainer: Trainer) -> Run:
        assets = json.dumps(self.task.assets_to_json(self.assets), sort_keys=True) + self.data.contents
        files = list(data_paths(self.config).values())
        origin = Origin(self.task.name, self.data.fingerprint, hash_of(assets.encode()), files)
        return Run(folder, trainer, self.model.save, origin)

    def _write_config(self, folder: Path, change: str = "") -> None:
        """Write config.toml; comments at its top list changes since the start."""
        path, lines = folder / CONFIG, list[str]()
        if not self.ranks.is_first:
            return
        if path.is_file():
            top = path.read_text(encoding="utf-8").split("\n\n")[0].splitlines()
            lines = [line.removeprefix("# ") for line in top if line.startswith("# ")]
        header = "\n".join([*lines, change] if change else lines)
        write_atomically(path, write_toml(with_absolute_paths(self.config), comments=False, header=header))

    def _watchers(self, run: Run, callbacks: Sequence[Callback], *, resumed: bool = False) -> Watchers:
        """The run's watchers: those of the first of several processes."""
        config = {key: attrgetter(key)(self.config) for key in keys(type(self.config))}
        watched = WatchedRun(run.folder, self.task.name, config, self.data.source, run.trainer, resumed)
        return Watchers([*self.trackers, *callbacks] if self.ranks.is_first else [], watched)


def restarted_run() -> Path | None:
    """The folder of the run that this command had begun, if torchrun starts it again."""
    folder = remembered_folder()
    return None if folder is None else Path(folder)


def resume_run(
    folder: Path,
    overrides: list[str],
    extra: Mapping[str, Any],
    *,
    task: Task | None = None,
    target: Target | None = None,
    quiet: bool = False,
    callbacks: Sequence[Callback] = (),
) -> Model:
    """Continue a stopped run; changes of its config are `key=value` texts and values of dotted keys.

    `target` is the run's task and config file where the caller has read them already.
    """
    check_run(folder)
    with locked(folder) if RankPlace.of(os.environ).rank == 0 else nullcontext():
        target = target or find_target(folder / CONFIG, task)
        old: Any = target.configure()
        new: Any = target.configure(overrides, extra)
        lines = check_changes(folder, old, new, [f"data.{name}" for name in FILE_KEYS])
        check_held(data_paths(new).values(), folder)
        init = folder / INIT if (folder / INIT).is_file() else None
        job = TrainingJob(new, init=init, task=target.task, checked=True)
        return job.resume(folder, old if lines else None, lines, quiet=quiet, callbacks=callbacks)


def _machine(settings: TrainSettings) -> tuple[torch.device, Ranks]:
    """The device to compute on, and the processes to train with; torch is set as the settings say."""
    if settings.deterministic != torch.are_deterministic_algorithms_enabled():  # setting it loads torch's compiler
        torch.use_deterministic_algorithms(settings.deterministic)
    device = pick_device(settings.device)
    ranks = join(device, settings.backend, settings.timeout)
    device = device_of_rank(device, ranks.place, alone_on_it=ranks.backend == NCCL)
    threads = settings.threads or threads_of_rank(device, ranks.place)
    if threads is not None:
        torch.set_num_threads(threads)
    return device, ranks


def _shaped(config: Any, kept: Mapping[str, Any]) -> Any:
    """The config with the architecture of the initial model; an error if the config sets another one."""
    usual, kept_config = type(config)(), apply(config, kept)
    for key in keys(type(config)):
        asked, value = attrgetter(key)(config), attrgetter(key)(kept_config)
        if asked not in (value, attrgetter(key)(usual)):
            raise UserError(f"{key}={asked} differs from the initial model, which has {value}.", "Leave it out.")
    return kept_config


def _origin(config: Any, data: Data) -> dict[str, str]:
    """The data of a run as its model file names it: files without their folders, and a hash of the examples.

    Data in memory: its title, "in memory: DataFrame with 9 rows".
    """
    keys = ("data.train", "data.train_source", "data.train_target", "data.valid", "data.valid_source")
    paths = data_paths(config)
    given = [paths[key] for key in (*keys, "data.valid_target") if key in paths]
    files = [f"in memory: {title_of(path)}" if in_memory(path) else Path(path).name for path in given]
    found = {"source": (", ".join(files) or data.source)[:1000]}
    if data.fingerprint:
        found["sha256"] = hash_of(data.fingerprint.encode(), data.contents.encode())
    return found
