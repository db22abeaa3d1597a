"""Scenarios of megatron_ranks.py: Megatron-Core's column- and row-parallel layers, the same with scratch in the
place of its global memory buffer, and pagestash's layers with the same weights."""
import time
import unittest.mock

import pagestash.torch
import torch
from megatron.core import ModelParallelConfig, parallel_state, tensor_parallel

import pagestash.megatron
from pagestash.torch import leases

TOKENS, BATCH, HIDDEN, FFN, STEPS = 6, 3, 8, 12, 3


def _layers(sequence_parallel, bias):
    config = ModelParallelConfig(tensor_model_parallel_size=2, sequence_parallel=sequence_parallel,
                                 params_dtype=torch.float32, use_cpu_initialization=True)
    options = dict(config=config, init_method=torch.nn.init.xavier_normal_, bias=bias, skip_bias_add=False)
    torch.manual_seed(7)
    up = tensor_parallel.ColumnParallelLinear(HIDDEN, FFN, gather_output=False, **options)
    down = tensor_parallel.RowParallelLinear(FFN, HIDDEN, input_is_parallel=True, **options)
    return up, down


def _train(up, down, sequence_parallel, answers):
    """A few steps of plain descent: every output, gradient and weight."""
    rank, seen = parallel_state.get_tensor_model_parallel_rank(), []
    parameters = [*up.parameters(), *down.parameters()]
    for step in range(STEPS):
        torch.manual_seed(100 + step)
        x, dy = torch.randn(TOKENS, BATCH, HIDDEN), torch.randn(TOKENS, BATCH, HIDDEN)
        if sequence_parallel:
            x, dy = x.chunk(2)[rank].clone(), dy.chunk(2)[rank]
        x.requires_grad_()
        y = answers(down(torch.nn.functional.gelu(answers(up(x)))))
        y.backward(dy)
        seen += [y, x.grad, *(parameter.grad for parameter in parameters)]
        with torch.no_grad():
            for parameter in parameters:
                parameter.sub_(0.1 * parameter.grad)
                parameter.grad = None
    return [t.detach().clone() for t in seen] + [p.detach().clone() for p in parameters]


def _cases():
    return [(sequence_parallel, bias) for sequence_parallel in (False, True) for bias in (False, True)]


def _equal(got, want):
    return len(got) == len(want) > 0 and all(torch.equal(a, b) for a, b in zip(got, want))


def _are_let_go(buffers):
    """Waits for gloo's threads, which hold what they have gathered until they run again. Without a lock: who lets
    go where it is taken leaves the lease to the next get_tensor."""
    deadline = time.monotonic() + 60
    while buffers._users and time.monotonic() < deadline:
        time.sleep(1e-3)


@unittest.mock.patch.object(leases, "PATIENCE", 60)  # nobody holds anything, however late the threads are
def layers():
    """For each case whether scratch, and whether pagestash's layers, give Megatron-Core's bits, and how often the
    buffer was asked for."""
    parallel_state.initialize_model_parallel(2)
    group, out = parallel_state.get_tensor_model_parallel_group(), {}
    for sequence_parallel, bias in _cases():
        def first(pair):
            return pair[0]
        want = _train(*_layers(sequence_parallel, bias), sequence_parallel, first)
        with pagestash.megatron.scratch(device="cpu", on_held="raise") as buffers:
            leased = _train(*_layers(sequence_parallel, bias), sequence_parallel, first)
            _are_let_go(buffers)
            gets, held, live = buffers.num_gets, buffers.num_held, buffers.scratch.info().num_live
        up, down = _layers(sequence_parallel, bias)
        of = {"group": group, "scratch": pagestash.torch.scratch.of("cpu")}
        own = _train(pagestash.torch.ColumnParallelLinear.wrap(up, **of),
                     pagestash.torch.RowParallelLinear.wrap(down, **of), sequence_parallel, lambda y: y)
        out[f"{sequence_parallel} {bias}"] = {"scratch": _equal(leased, want), "own": _equal(own, want),
                                              "gets": gets, "held": held, "live": live}
    parallel_state.destroy_model_parallel()
    return out


def holding():
    """Who keeps the buffer is named, by an Error or a warning; what nobody holds is nobody's."""
    parallel_state.initialize_model_parallel(2)
    sentences = []
    with pagestash.megatron.scratch(device="cpu", on_held="raise") as buffers:
        get = parallel_state.get_global_memory_buffer().get_tensor
        kept = get([4], torch.float32, "mpu")
        try:
            get([4], torch.float32, "mpu")
        except pagestash.megatron.Error as error:
            sentences.append(str(error))
        other = get([4], torch.bfloat16, "mpu")  # of another type, and so another buffer
        address = kept.data_ptr()
        del kept
        again = get([2, 2], torch.float32, "mpu")
        out = {"same": again.data_ptr() == address, "apart": other.data_ptr() != address,
               "live": buffers.scratch.info().num_live}
        try:
            pagestash.megatron.scratch(device="cpu")
        except pagestash.megatron.Error as error:
            sentences.append(str(error))
        del again, other
    before = parallel_state.get_global_memory_buffer()
    with pagestash.megatron.scratch(device="cpu", on_held="warn") as buffers:
        get = parallel_state.get_global_memory_buffer().get_tensor
        kept = [get([4], torch.float32, "mpu") for _ in range(3)]
        out["held"] = buffers.num_held
        del kept
    out["back"] = parallel_state.get_global_memory_buffer() is before
    try:
        pagestash.megatron.scratch(device="cpu", on_held="shout")
    except pagestash.megatron.Error as error:
        sentences.append(str(error))
    parallel_state.destroy_model_parallel()
    return out | {"said": sentences}
