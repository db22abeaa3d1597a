"""pagestash.estimate(...): memory and traffic of a training run before it starts, as objects."""
import os
import shlex
from collections.abc import Sequence
from typing import Any, Literal, overload

from . import command
from ._checks import Error, integer, listed
from .command import Answer, Table, gib

_NOT_HERE = {"json": "the answer has .json", "help": "run `pagestash help estimate`",
             "details": "the answer has all figures",
             "version": "pagestash.__version__ is the same",
             "compat": "run `pagestash estimate --compat`, whose report is text"}


class Estimate(Answer):
    """The report of a run. All bytes are integers; docs/formats.md has every key.

    print(answer) and a notebook show a row for each stage of the pipeline, in GiB."""

    __slots__ = ()
    config: Answer  # the run as it was understood: fields of pst_estimate_config
    assumptions: tuple[str, ...]  # what stands where no flag said anything
    warnings: tuple[str, ...]  # unknown flags, flags given twice
    not_counted: tuple[str, ...]  # flags that change memory and are not modelled
    matters: tuple[str, ...]  # of these, what changes whole states or sizes
    params: Answer  # total, active, experts, ...: numbers of parameters
    stages: tuple[Answer, ...]  # .layers, .params, .bytes.{weights,...,total,peak,margin}, .in_flight
    ledger: Answer  # dense, moe: bytes that a layer saves for its backward, by tensor
    comm: tuple[Answer, ...]  # transfers: .stage, .op, .group, .count, .payload_bytes, .wire_bytes
    cluster: Answer  # .world_size, .fits, .heaviest_stage, .gpu_memory_bytes, ...
    moe_buffers: Answer | None  # .balanced_rows, .worst_bytes, .pages, .pool_bytes, ...; None: no experts
    whatif: tuple[Answer, ...]  # .change, .cost, .saved_bytes, .extra_wire_bytes, .peak_bytes, .fits
    together: Answer | None  # the same of two or three changes, where no single one fits

    @property
    def fits(self) -> bool:
        """Every stage fits in gpu_memory."""
        return self.cluster.fits

    @property
    def heaviest(self) -> Answer:
        """The stage whose GPUs need most."""
        return self.stages[self.cluster.heaviest_stage]

    @property
    def peak_bytes(self) -> int:
        """Of a GPU of the heaviest stage."""
        return self.heaviest.bytes.peak

    def _table(self):
        names = ("weights", "gradients", "optimizer", "activations", "head", "recompute", "paging",
                 "transients", "peak", "margin")
        rows = [[f"{stage.stage}{'*' * (stage.stage == self.cluster.heaviest_stage)}",
                 stage.params.total, *(gib(stage.bytes[name]) for name in names)]
                for stage in self.stages]
        memory = gib(self.cluster.gpu_memory_bytes)
        notes = [f"{'fits' if self.fits else 'does not fit'} in {memory} GiB; * needs most"]
        notes += [f"warning: {text}" for text in self.warnings]
        notes += [f"not counted: {text}" for text in self.not_counted]
        return Table("memory of one GPU of each stage, GiB", ["stage", "parameters", *names], rows, notes)

    def __str__(self) -> str:
        return self._table().text()

    def _repr_html_(self) -> str:
        return self._table().html()


class Fit(Answer):
    """With fit=True: whether the run fits, and what the largest batch would be that does."""

    __slots__ = ()
    fits: bool
    needed_bytes: int  # by a GPU of the heaviest stage
    margin_bytes: int  # negative: so much is missing
    largest_micro_batch: int  # 0: none fits
    largest_sequence: int  # in steps of sequence_step
    stages: tuple[Answer, ...]  # .stage, .needed_bytes, .margin_bytes

    def _table(self):
        rows = [[of.stage, gib(of.needed_bytes), gib(of.margin_bytes)] for of in self.stages]
        return Table("bytes of one GPU of each stage, GiB", ["stage", "needed", "margin"], rows,
                     [f"{'fits' if self.fits else 'does not fit'}; largest micro-batch "
                      f"{self.largest_micro_batch}, largest sequence {self.largest_sequence}"])

    def __str__(self) -> str:
        return self._table().text()

    def _repr_html_(self) -> str:
        return self._table().html()


class Search(Answer):
    """With search=True: ways to split the model over the GPUs, the best first."""

    __slots__ = ()
    tried: int
    valid: int
    fitting: int
    given: Answer  # the split that was asked: .needed_bytes, .margin_bytes, .fits, ...
    kept: tuple[str, ...]  # sizes that flags gave
    best: tuple[Answer, ...]  # .tensor_parallel, .pipeline_parallel, ..., .margin_bytes, .predicted_us

    def _table(self):
        columns = list(self.best[0]) if self.best else []
        rows = [[of[column] for column in columns] for of in self.best]
        return Table(f"{self.fitting} of {self.valid} ways to split fit", columns, rows)

    def __str__(self) -> str:
        return self._table().text()

    def _repr_html_(self) -> str:
        return self._table().html()


@overload
def estimate(launch: str | Sequence[str] = (), *, fit: Literal[True], **flags: Any) -> Fit: ...
@overload
def estimate(launch: str | Sequence[str] = (), *, search: Literal[True], **flags: Any) -> Search: ...
@overload
def estimate(launch: str | Sequence[str] = (), *, timeline: int,
             **flags: Any) -> tuple[Answer, ...]: ...
@overload
def estimate(launch: str | Sequence[str] = (), **flags: Any) -> Estimate: ...


def estimate(launch: str | Sequence[str] = (), **flags: Any) -> Answer | tuple[Answer, ...]:
    """Memory and traffic of a training run, from flags of Megatron-LM: what `pagestash estimate` answers.

        pagestash.estimate(preset="mixtral-8x7b", world_size=64, expert_model_parallel_size=8)
        pagestash.estimate("torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers 32 ...", fit=True)

    launch: a launch line as it stands, one text or its words; $VARIABLES are not replaced.
    flags: flags by their names with underscores, after those of the launch line. True: a flag without a
    value; None, False: not given; a list: its values in turn, for moe_layer_freq a layer each. Without a launch
    line, flags that nobody knows are an error (strict).

    Returns an Estimate; with fit=True a Fit, with search=True a Search (where nothing fits, too), with
    timeline=STAGE a tuple with an Answer for each forward and backward: event, kind, chunk, micro_batch,
    live_layers, saved_bytes, head_bytes, bytes.
    Raises pagestash.Error with the command's sentence and `exit_code`: 2: a flag or value, 3: a bad file."""
    for name, instead in _NOT_HERE.items():
        if name in flags:
            raise Error(f"estimate: {name} is no argument here: {instead}")
    if isinstance(launch, (str, os.PathLike)):
        try:
            launch = shlex.split(os.fspath(launch))
        except ValueError as error:
            raise Error(f"estimate: the launch line: {error}") from None
    launch = listed(() if launch is None else launch, "estimate: launch", "a launch line")
    if isinstance(flags.get("moe_layer_freq"), (list, tuple)):
        flags["moe_layer_freq"] = str([integer(is_moe, f"moe_layer_freq[{i}]", 1)
                                       for i, is_moe in enumerate(flags["moe_layer_freq"])])
    if not launch:
        flags.setdefault("strict", True)
    words = ["estimate", *map(command.word_of, launch), *command.flags_of(flags, joined=False)]
    if flags.get("timeline") is not None:
        return _timeline(words)
    data, _ = command.ask(words)
    kinds: dict[str, type[Answer]] = {"fit": Fit, "search": Search}
    return kinds.get(data.get("mode", ""), Estimate)(data)


def _timeline(words):
    lines = command.run(words)[0].split()
    columns, rows = lines[0].split(","), (line.split(",") for line in lines[1:])
    return tuple(Answer({column: cell if column == "kind" else int(cell)
                         for column, cell in zip(columns, row)}) for row in rows)
