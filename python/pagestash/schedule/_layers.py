"""Layers of a scheduler: what each keeps and how, as the C structs want it."""
import ctypes
import dataclasses
from typing import Any, NamedTuple, Optional, Sequence

from .. import _abi, _c, pool as _pool
from .._checks import Error, integer, listed, number_of
from ._words import KEEPS, MOVES, USES, address_of, share_of

_SETS = ctypes.POINTER(_abi.pst_buffers)
_BUFFERS_BYTES = ctypes.sizeof(_abi.pst_buffers)


class Buffers(NamedTuple):
    """Where the tensors of a form lie: addresses, or objects with data_ptr(), which are kept alive.

    bases: one for each tensor of the form. counts: one for each of its row spaces, the address of int32
    or int64 row counts on the device; a destination needs none. capacities (rows, of each space) and
    row_strides (bytes, of each tensor): other ones than the form's; 0: the form's."""
    bases: Sequence[Any]
    counts: Sequence[Any] = ()
    capacities: Sequence[int] = ()
    row_strides: Sequence[int] = ()

    @classmethod
    def of(cls, given, what: str) -> "Buffers":
        """Of itself, or of a sequence of bases."""
        if isinstance(given, cls):
            return given
        if isinstance(given, (str, bytes)) or not hasattr(given, "__len__"):
            raise Error(f"{what}: {type(given).__name__}: Buffers, or a sequence of addresses or "
                        "tensors is wanted")
        return cls(tuple(given))

    def raw(self, form: _pool.Form, what: str, device: str = "") -> _abi.pst_buffers:
        """The C struct; it refers to arrays that live as long as it does. device: of device_of."""
        tensors, spaces = len(form.tensors), len(form.spaces)
        out = _abi.pst_buffers(_BUFFERS_BYTES)
        out.bases = form.bases_type(*self._of(self.bases, tensors, f"{what}: bases"))
        if self.counts:
            out.counts = form.counts_type(*self._of(self.counts, spaces, f"{what}: counts"))
        if self.capacities:
            out.capacities = self._numbers(ctypes.c_int64, self.capacities, spaces, f"{what}: capacities")
        if self.row_strides:
            out.row_strides = self._numbers(ctypes.c_uint64, self.row_strides, tensors,
                                            f"{what}: row_strides")
        self._check_tensors(form, what, device)
        return out

    def _check_tensors(self, form, what, device):
        """What is not an address is held to the form: the library would read and write behind it."""
        for i, (place, rows) in enumerate(zip(self.bases, form.tensors)):
            strided = rows.row_stride or self.row_strides and self.row_strides[i]
            if strided:
                check_device(place, device, f"{what}: bases[{i}]")
            else:
                capacity = self.capacities[rows.space] if self.capacities else 0
                wanted = bytes_at_capacity(form, rows, capacity)
                check_extent(place, wanted, device, f"{what}: bases[{i}]")
                check_rows(place, wanted, rows.row_bytes, f"{what}: bases[{i}]")
        for i, (place, space) in enumerate(zip(self.counts, form.spaces)):
            name = f"{what}: counts[{i}]"
            check_extent(place, max(space.num_segments, 1) * space.count_bytes, device, name)
            wanted, dtype = f"int{8 * space.count_bytes}", getattr(place, "dtype", None)
            if dtype is not None and str(dtype).rpartition(".")[2] != wanted:
                raise Error(f"{name}: {dtype}: the form's are {wanted}")

    @staticmethod
    def _of(places, wanted, what):
        places = listed(places, what)
        if len(places) != wanted:
            raise Error(f"{what}: {len(places)}: the form has {wanted}")
        return [address_of(place, what) for place in places]

    @staticmethod
    def _numbers(ctype, given, wanted, what):
        array = _c.array(ctype, given, what)
        if len(array) != wanted:
            raise Error(f"{what}: {len(array)}: the form has {wanted}")
        return array


def bytes_at_capacity(form: _pool.Form, rows: _pool.Rows, capacity: int = 0) -> int:
    """Of a tensor of the form. capacity: other rows than the form's; 0: the form's."""
    space = form.spaces[rows.space]
    one = capacity or space.capacity
    one = -(-one * rows.num // rows.den) if rows.den else one
    return one * rows.row_bytes * (space.num_segments if space.kind == "segments" else 1)


def device_of(pool: Optional[_pool.Pool]) -> str:
    """Where tensors for a pool are, as torch says it: "cpu", "cuda:0"."""
    if pool is None or pool.device.info().kind != _abi.PST_DEVICE_CUDA:
        return "cpu"
    return f"cuda:{pool.device.index}"


def check_device(place, device: str, what: str) -> None:
    """Of an object that says where it is, as a tensor does. Errors: elsewhere."""
    if device and str(getattr(place, "device", device)) != device:
        raise Error(f"{what}: on {place.device}: the pool is on {device}")


def check_rows(place, num_bytes: int, row_bytes: int, what: str) -> None:
    """Of an object whose first dimension counts just the rows. Errors: they have other bytes than the form's,
    as those of another dtype have."""
    shape, have = getattr(place, "shape", ()), getattr(place, "nbytes", num_bytes)
    if shape and shape[0] * row_bytes == num_bytes != have:
        raise Error(f"{what}: {have // shape[0]} bytes in a row ({place.dtype}): the form has {row_bytes}")


def check_extent(place, num_bytes: int, device: str, what: str) -> None:
    """Of an object that says its bytes, as a tensor does. Errors: it has less, or gaps, or is elsewhere."""
    check_device(place, device, what)
    have = getattr(place, "nbytes", None)
    if have is None:
        return
    contiguous = getattr(place, "is_contiguous", None)
    if have < num_bytes or contiguous is not None and not contiguous():
        raise Error(f"{what}: {have} bytes{'' if have < num_bytes else ' with gaps'}: wanted are "
                    f"{num_bytes}, contiguous")


@dataclasses.dataclass(frozen=True)
class Part:
    """Tensors of a paged layer that are stashed together, into a ticket of their own.

    form: what they are (pagestash.pool.Form). sources: fixed sets that forwards write, each a Buffers
    with counts; destinations: fixed sets that restores write, of other memory (none with one_ring).
    Both None: the caller's own, and then of all parts of all layers. uses: which passes read it, where
    backwards are split: "both", "backward" (of the input), "weight"."""
    form: _pool.Form
    sources: Optional[Sequence] = None
    destinations: Optional[Sequence] = None
    uses: str = "both"


@dataclasses.dataclass(frozen=True)
class Layer:
    """A layer of this GPU: `layer` from 0 within its chunk, every one exactly once.

    keep: "paged" (parts: 1 to 4), "swapped", "planned", "recomputed". Swapped: buffers are MEMO's two
    rounding buffers; the first whole_bytes of one go whole to pinned memory, of num_tokens rows of
    token_bytes behind them the first swap_tokens. host_share: the share of a paged layer's pages that
    goes to the host, from 0 to 1; move: "direct" or "demote", which moves pages back promote_ahead
    restores ahead (0: 1). holds: a destination is kept from an input backward to its weight pass."""
    layer: int = 0
    chunk: int = 0
    keep: str = "paged"
    parts: Sequence[Part] = ()
    buffers: Sequence[Any] = ()
    whole_bytes: int = 0
    token_bytes: int = 0
    num_tokens: int = 0
    swap_tokens: int = 0
    host_share: Any = 0
    move: str = "direct"
    promote_ahead: int = 0
    holds: bool = False

    @property
    def name(self) -> str:
        """As the library calls it."""
        return f"layer {self.layer} of chunk {self.chunk}"


class RawLayers:
    """The C structs of layers, and all that they point to, for pst_scheduler_create."""

    def __init__(self, layers: Sequence[Layer], num_sources: int, num_destinations: int,
                 one_ring: bool, device: str):
        self.owners, self.device = [], device
        self.forms = {}  # of each paged (chunk, layer): of its parts
        self.num_sources, self.num_destinations, self.one_ring = (num_sources, num_destinations,
                                                                  one_ring)
        self.is_own = None  # not said yet
        self.array = (_abi.pst_layer * len(layers))()
        for raw, layer in zip(self.array, layers):
            if not isinstance(layer, Layer):
                raise Error(f"layers: {type(layer).__name__}: pagestash.schedule.Layer is wanted")
            self._fill(raw, layer)

    def _fill(self, raw, layer):
        raw.chunk = integer(layer.chunk, "chunk")
        raw.layer = integer(layer.layer, "layer")
        raw.keep = number_of(KEEPS, layer.keep, f"{layer.name}: keep")
        raw.policy = policy_of(layer)
        for name in ("whole_bytes", "token_bytes", "num_tokens"):
            setattr(raw, name, integer(getattr(layer, name), f"{layer.name}: {name}", 64))
        if layer.keep == "swapped":
            buffers = listed(layer.buffers, f"{layer.name}: buffers")
            if len(buffers) != 2:
                raise Error(f"{layer.name}: buffers: {len(buffers)}: a swapped layer has two")
            self.owners.extend(buffers)
            wanted = raw.whole_bytes + raw.num_tokens * raw.token_bytes
            for i, place in enumerate(buffers):
                check_extent(place, wanted, self.device, f"{layer.name}: buffer {i}")
                raw.buffers[i] = address_of(place, f"{layer.name}: buffer {i}")
        elif layer.keep == "paged":
            self._fill_parts(raw, layer)

    def _fill_parts(self, raw, layer):
        parts = listed(layer.parts, f"{layer.name}: parts")
        raw.num_parts, raw.parts = len(parts), (_abi.pst_part * len(parts))()
        for i, part in enumerate(parts):
            if not isinstance(part, Part) or not isinstance(part.form, _pool.Form):
                raise Error(f"{layer.name}, part {i}: pagestash.schedule.Part with a "
                            "pagestash.pool.Form is wanted")
        self.forms[layer.chunk, layer.layer] = tuple(part.form for part in parts)
        for i, part in enumerate(parts):
            name = f"{layer.name}, part {i}"
            if self.is_own is None:
                self.is_own = part.sources is None
            if self.is_own != (part.sources is None):
                raise Error(f"{name}: sources: all parts of all layers name theirs, or none does")
            out = raw.parts[i]
            out.group, out.uses = part.form.handle, number_of(USES, part.uses, f"{name}: uses")
            if not self.is_own:
                out.sources = self._sets(part.form, part.sources, "sources", name)
            if part.destinations is not None:
                if self.is_own or self.one_ring:
                    raise Error(f"{name}: destinations: one ring and sets of the caller's own have "
                                "none")
                out.destinations = self._sets(part.form, part.destinations, "destinations", name)

    def _sets(self, form, sets, which, name):
        """An array of as many sets as the config says: the library reads so many."""
        sets, wanted = listed(sets, f"{name}: {which}"), getattr(self, f"num_{which}")
        if wanted == 0:
            wanted = len(sets)
            setattr(self, f"num_{which}", wanted)
        if len(sets) != wanted or wanted == 0:
            raise Error(f"{name}: {which}: {len(sets)}: num_{which} is {wanted}")
        array = (_SETS * wanted)()
        for i, given in enumerate(sets):
            what = f"{name}, {which}[{i}]"
            buffers = Buffers.of(given, what)
            self.owners.append(buffers)
            array[i] = ctypes.pointer(buffers.raw(form, what, self.device))
        return array


def policy_of(layer) -> _abi.pst_layer_policy:
    """Of anything with the fields of a Layer."""
    num, den = share_of(layer.host_share)
    return _abi.pst_layer_policy(
        host_num=num, host_den=den, move=number_of(MOVES, layer.move, f"{layer.name}: move"),
        promote_ahead=integer(layer.promote_ahead, f"{layer.name}: promote_ahead"),
        swap_tokens=integer(layer.swap_tokens, f"{layer.name}: swap_tokens", 64),
        holds=bool(layer.holds))
