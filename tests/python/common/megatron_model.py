"""A small GPTModel of Megatron-Core with paged experts, trained on CPU tensors by its own
schedules.

Import after cuda_shim.install() and pagestash.megatron. The experts' module is ours (Megatron's
needs Transformer Engine); router, dispatcher, attention, DDP, schedules and the runner are
Megatron's."""
import contextlib
import functools
import hashlib

import torch
import torch.nn.functional as F
from megatron.core import parallel_state, tensor_parallel
from megatron.core.distributed import (DistributedDataParallel, DistributedDataParallelConfig,
                                       finalize_model_grads)
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.pipeline_parallel import get_forward_backward_func
from megatron.core.transformer.module import MegatronModule
from megatron.core.transformer.moe import moe_layer, paged_stash
from megatron.core.transformer.moe.moe_logging import (destroy_moe_metrics_tracker,
                                                       get_moe_metrics_tracker)
from megatron.core.transformer.torch_norm import WrappedTorchNorm
from megatron.core.transformer.transformer_block import TransformerBlockSubmodules
from megatron.core.transformer.transformer_config import TransformerConfig

HIDDEN, FFN, EXPERTS, TOPK, SEQ, BATCH, VOCAB = 64, 128, 8, 2, 32, 2, 256


class ExpertsFn(torch.autograd.Function):
    """What TE's fused operation saves: its input, the pre-activation, the probabilities, each
    tagged as TE tags it; and where asked a row of scales for each 32 rows, and a tensor that is
    not tagged."""

    @staticmethod
    def forward(ctx, x, p, offs, w1, w2, extra):
        h = F.grouped_mm(x, w1, offs=offs)
        gate, up = h.chunk(2, -1)
        y = F.grouped_mm(F.silu(gate) * up * p, w2, offs=offs)
        scales = torch.arange(x.shape[0] // 32 * 4, dtype=torch.uint8).view(-1, 4)
        saved, live = [x, h, p], int(offs[-1])
        for tensor in saved:
            tensor.grouped_tensor_scale_inv = False
        if "scales" in extra:
            scales.grouped_tensor_scale_inv = True
            saved.append(scales)
        if "plain" in extra:
            saved.append(x * 1)
        ctx.extra, ctx.scales, ctx.live = extra, scales.clone(), live
        ctx.save_for_backward(offs, w1, w2, *saved)
        return y

    @staticmethod
    def backward(ctx, dy):
        offs, w1, w2, x, h, p, *more = ctx.saved_tensors
        if "scales" in ctx.extra:
            rows = -(-ctx.live // 32)
            if not torch.equal(more[0][:rows], ctx.scales[:rows]):
                ctx.extra["scales"] += 1  # wrong ones
        h, p = h.detach().requires_grad_(), p.detach().requires_grad_()
        with torch.enable_grad():
            gate, up = h.chunk(2, -1)
            a = F.silu(gate) * up * p
        da = F.grouped_mm(dy, w2.transpose(-2, -1), offs=offs)
        dw2 = F.grouped_mm(a.detach().t(), dy, offs=offs)
        dh, dp = torch.autograd.grad(a, (h, p), da)
        dx = F.grouped_mm(dh, w1.transpose(-2, -1), offs=offs)
        return dx, dp, None, F.grouped_mm(x.t(), dh, offs=offs), dw2, None


class StaticExperts(MegatronModule):
    """The calls of TEGroupedMLP._fused_forward, with static buffers of `capacity` rows."""

    capacity = None
    extra = {}

    def __init__(self, num_local_experts, config, *args, **kwargs):
        super().__init__(config)
        h, f = config.hidden_size, config.ffn_hidden_size
        self.w1 = torch.nn.Parameter(torch.randn(num_local_experts, h, 2 * f) * h ** -0.5)
        self.w2 = torch.nn.Parameter(torch.randn(num_local_experts, f, h) * f ** -0.5)
        for weight in (self.w1, self.w2):
            weight.allreduce = False  # of experts: other ranks have others
            weight.data = weight.data.to(config.params_dtype)

    def forward(self, x, tokens_per_expert, probs):
        live, rows, config = x.shape[0], self.capacity, self.config
        assert live <= rows, (live, rows)
        x = F.pad(x, (0, 0, 0, rows - live))
        probs = F.pad(probs, (0, rows - live)).unsqueeze(-1).to(x.dtype)
        offs = tokens_per_expert.cumsum(0).to(torch.int32)
        context = contextlib.nullcontext()
        if config.moe_paged_stash:
            x = paged_stash.paged_stash_group_start(x)
            context = paged_stash.get_paged_stash_context(
                name="grouped_mlp", max_num_tokens=rows, num_tokens_tensor=tokens_per_expert.sum(),
                avg_num_tokens=int(rows // config.moe_expert_rank_capacity_factor))
        with context:
            y = ExpertsFn.apply(x, probs, offs, self.w1, self.w2, self.extra)
        if config.moe_paged_stash:
            y = paged_stash.paged_stash_group_commit(y, name="grouped_mlp")
        return y[:live], None


class Training:
    """The model on this rank, its data, and steps of Megatron's schedule."""

    def __init__(self, stash, factor=1.1, dtype=torch.float32, chunks=1, layers=3, micro_batches=3,
                 cpu_factor=0.0, extra=None, seed=7, overlap=False, experts=EXPERTS,
                 position="learned_absolute", seq=SEQ, dense=0, attention=None, **fields):
        self.micro_batches, self.chunks, self.overlap = micro_batches, chunks, overlap
        pp = parallel_state.get_pipeline_model_parallel_world_size()
        ep = parallel_state.get_expert_model_parallel_world_size()
        self.experts, self.position, self.seq, self.dense = experts, position, seq, dense
        self.attention = attention
        routed = dict(
            num_moe_experts=experts, moe_router_topk=TOPK, moe_token_dispatcher_type="allgather",
            moe_aux_loss_coeff=1e-2, moe_router_load_balancing_type="aux_loss",
            moe_router_score_function="sigmoid", moe_router_enable_expert_bias=True,
            expert_model_parallel_size=ep) if experts else {}
        self.config = config = TransformerConfig(**{**routed, **dict(
            num_layers=layers, hidden_size=HIDDEN, num_attention_heads=4, ffn_hidden_size=FFN,
            use_cpu_initialization=True, add_bias_linear=False, gated_linear_unit=True,
            activation_func=F.silu, hidden_dropout=0.1, attention_dropout=0.1,
            masked_softmax_fusion=False, bias_dropout_fusion=False, persist_layer_norm=False,
            gradient_accumulation_fusion=False,
            tensor_model_parallel_size=parallel_state.get_tensor_model_parallel_world_size(),
            context_parallel_size=parallel_state.get_context_parallel_world_size(),
            pipeline_model_parallel_size=pp, pipeline_dtype=dtype, params_dtype=dtype,
            bf16=dtype == torch.bfloat16, batch_p2p_comm=False, deallocate_pipeline_outputs=False,
            virtual_pipeline_model_parallel_size=chunks if chunks > 1 else None), **fields})
        # The constructor asks for TE's dispatcher.
        config.moe_expert_rank_capacity_factor, config.moe_paged_stash = 2.0, stash
        config.moe_paged_stash_buffer_size_factor_cuda = factor
        config.moe_paged_stash_buffer_size_factor_cpu = cpu_factor
        config.finalize_model_grads_func = finalize_model_grads
        StaticExperts.capacity = BATCH * seq * ep * TOPK
        StaticExperts.extra = extra if extra is not None else {}
        torch.manual_seed(seed)
        tensor_parallel.model_parallel_cuda_manual_seed(seed)
        self.model = [self._chunk(chunk) for chunk in range(chunks)]
        destroy_moe_metrics_tracker()
        if overlap:  # gradients are reduced during the last micro-batch's backward
            config.no_sync_func = self.model[0].no_sync
        self.metrics = get_moe_metrics_tracker()
        self.schedule = get_forward_backward_func()
        self.mask = torch.triu(torch.ones(1, 1, seq, seq, dtype=torch.bool), 1)
        self.at = 0
        torch.manual_seed(seed)

    def _chunk(self, chunk):
        first, last = self._ends(chunk)
        spec = get_gpt_layer_local_spec(num_experts=self.experts, moe_grouped_gemm=False)
        if self.experts:
            spec.submodules.mlp = functools.partial(
                moe_layer.MoELayer, submodules=moe_layer.MoESubmodules(experts=StaticExperts))
        if self.attention:
            spec.submodules.self_attention.submodules.core_attention = self.attention
        if self.dense:
            layers = self.config.num_layers
            spec = TransformerBlockSubmodules(
                [get_gpt_layer_local_spec()] * self.dense + [spec] * (layers - self.dense),
                WrappedTorchNorm)
        virtual = chunk if self.chunks > 1 else None
        model = GPTModel(config=self.config, transformer_layer_spec=spec, vocab_size=VOCAB,
                         max_sequence_length=self.seq, pre_process=first, post_process=last,
                         share_embeddings_and_output_weights=False, vp_stage=virtual,
                         position_embedding_type=self.position)
        model.vp_stage = virtual
        for name, parameter in model.named_parameters():
            if parameter.dtype != self.config.params_dtype and "router" not in name:
                parameter.data = parameter.data.to(self.config.params_dtype)
        return DistributedDataParallel(
            self.config, DistributedDataParallelConfig(
                grad_reduce_in_fp32=True, overlap_grad_reduce=self.overlap), model)

    def _ends(self, chunk):
        pp = parallel_state.get_pipeline_model_parallel_world_size()
        rank = parallel_state.get_pipeline_model_parallel_rank()
        return rank == 0 and chunk == 0, rank == pp - 1 and chunk == self.chunks - 1

    def data(self, num):
        """An endless supply by number, so that the order of reading decides."""
        generator = torch.Generator().manual_seed(1000 + self.at)
        self.at += 1
        rank = parallel_state.get_data_parallel_rank()
        out = [torch.randint(0, VOCAB, (2, BATCH, self.seq + 1), generator=generator)[rank % 2]
               for _ in range(num)]
        return [iter(list(out)) for _ in range(self.chunks)]

    def forward_step(self, iterator, model):
        """Of Megatron's schedules."""
        tokens = next(iterator)
        loss = model(input_ids=tokens[:, :-1], position_ids=torch.arange(self.seq).expand(BATCH, self.seq),
                     attention_mask=self.mask, labels=tokens[:, 1:])
        return loss, lambda out: (out.float().mean(), {"loss": out.detach().float().mean()})

    def run(self, call, forward_only=False, micro_batches=None):
        """One step, or evaluation, by `call`: the schedule or a runner around it. Losses."""
        num = micro_batches or self.micro_batches
        iterators = self.data(num)
        if not forward_only:
            for chunk in self.model:
                chunk.zero_grad_buffer()
        with torch.set_grad_enabled(not forward_only):
            out = call(forward_step_func=self.forward_step, data_iterator=iterators,
                       model=self.model, num_microbatches=num, seq_length=self.seq,
                       micro_batch_size=BATCH, forward_only=forward_only)
        return [float(entry["loss"]) for entry in out]

    def update(self):
        """Plain gradient descent with what DDP reduced."""
        with torch.no_grad():
            for parameter in self.parameters():
                parameter -= (0.05 * parameter.main_grad).to(parameter.dtype)

    def parameters(self):
        """Of all chunks."""
        return [p for chunk in self.model for p in chunk.parameters()]

    def fingerprint(self):
        """Of weights, gradients, buffers (token counts, expert biases), auxiliary losses."""
        tensors = self.parameters() + [p.main_grad for p in self.parameters()]
        tensors += [b for chunk in self.model for b in chunk.module.buffers()]
        tensors += [entry.values for _, entry in sorted(self.metrics.metrics.items())]
        digest = hashlib.sha256()
        for tensor in tensors:
            digest.update(tensor.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
        return digest.hexdigest()[:16]
