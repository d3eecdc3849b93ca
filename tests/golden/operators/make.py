#!/usr/bin/env python3
"""Writes the facts that tests/scripts/programs/operators.sh compares with, beside itself. Needs PyTorch (2.13 made them).

  python3 tests/golden/operators/make.py [FAMILY...]

For each family of cases in tests/operators:

  FAMILY.data.safetensors       the inputs, and a weight for each output
  FAMILY.trained.safetensors    gradient_INPUT: of the sum of all outputs, each times its weight; value_OUTPUT
  FAMILY.outputs.safetensors    value_OUTPUT alone
  losses                        lines `FAMILY LOSS ...`: that sum, of each step
  modules.weights.safetensors   what its modules begin with; `trained` is less the gradients

The numbers are PyTorch's in float32; they are written only if it comes to the same ones in float64. What
dropout leaves out is not PyTorch's choice: `dropout` has Philox4x32-10's numbers, written down here on
their own."""
import json
import math
import os
import struct
import sys

import torch
import torch.nn.functional as F

HERE = os.path.dirname(os.path.abspath(__file__))
S = (4, 6, 5)
CLOSE = 4e-6          # float32 against float64, of the largest magnitude


def save(name, tensors):
    names = {torch.float32: "F32", torch.int32: "I32", torch.bool: "BOOL"}
    header, data = {}, b""
    for key in sorted(tensors):
        t = tensors[key].detach().contiguous()
        raw = t.numpy().tobytes()
        header[key] = {"dtype": names[t.dtype], "shape": list(t.shape),
                       "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(os.path.join(HERE, name), "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def truths(*sizes):
    return torch.rand(sizes) < 0.5


def whole(low, high, *sizes):
    return torch.randint(low, high, sizes).to(torch.int32)


# ------------------------------------------------------------------------------------------ families

def pointwise():
    t = dict(x=torch.randn(S), y=torch.randn(S), p=torch.rand(S) + 0.25, row=torch.randn(5),
             column=torch.randn(6, 1), mask=truths(*S), other=truths(6, 5), n=whole(-3, 4, *S),
             m=whole(-3, 4, 6, 5))

    def f(x, y, p, row, column, mask, other, n, m):
        return dict(
            add=x + y, sub=x - y, mul=x * y, div=x / p, add_row=x + row, sub_column=column - x,
            mul_row=x * row, div_column=column / p, row_column=row * column - row,
            numbers=3 * (x + 1.5) - (2 - y) / 4, number_by=2 / p, maximum=torch.maximum(x, y),
            minimum=torch.minimum(x, row),
            ties=torch.maximum(x.relu(), y.relu()) - torch.minimum(x.relu(), torch.zeros_like(x)),
            pow=p ** y, power=p ** 1.7 + x ** 3, two_to=2 ** x, square=x ** 2 + y.square(),
            sqrt=p.sqrt() + p ** 0.5, rsqrt=p.rsqrt(), neg=-x, abs=x.abs(), exp=x.exp(), log=p.log(),
            sin=x.sin(), cos=x.cos(), relu=x.relu(), sigmoid=x.sigmoid(), tanh=x.tanh(), silu=F.silu(x),
            gelu=F.gelu(x), gelu_tanh=F.gelu(x, approximate="tanh"),
            several=(x * y).sigmoid() * row.exp() + p.log() * column, where=torch.where(mask, x, y),
            where_numbers=torch.where(x > y, x, 0.5), where_row=torch.where(other, row, column) + x,
            masked_fill=x.masked_fill(other, -7.5), detach=x * y.detach(), 
            rows=2.5 * x + p ** 1.3 * F.gelu(y, approximate="tanh") + (x + 1 - y) * (2 * y / p) - p ** 3 + n,
            eq=n == m, ne=n != 1, lt=x < y,
            le=n <= m, gt=x > row, ge=n >= 0, logical_and=mask & other, logical_or=mask | other,
            logical_not=~mask, to_int=(x * 10).int(), to_long=n.long() * 3 - m, to_bool=n.bool(),
            mask_times=x * mask + n, whole=n * m - n.abs() + torch.maximum(n, m.expand(S)) - 2 * -m,
            whole_div=n / 4 + (m ** 2))
    return t, f


def activations():
    t = dict(x=2 * torch.randn(S), y=torch.randn(S), p=torch.rand(S) + 0.25, row=torch.randn(5), slope=torch.rand(6))

    def f(x, y, p, row, slope):
        return dict(
            clamp=x.clamp(-0.5, 1), clamp_min=x.clamp(min=0.25), clamp_max=y.clip(max=0.5),
            clamp_tensors=x.clamp(-p, p), hardtanh=F.hardtanh(x), hardtanh_wide=F.hardtanh(x, -2, 0.5),
            relu6=F.relu6(4 * x), hardsigmoid=F.hardsigmoid(3 * x), hardswish=F.hardswish(3 * x),
            leaky_relu=F.leaky_relu(x), leaky_relu_steep=F.leaky_relu(y, 0.2), elu=F.elu(x), elu_half=F.elu(y, 0.5),
            celu=F.celu(x, 2.0), selu=F.selu(x), prelu=F.prelu(x, slope), softplus=F.softplus(x),
            softplus_beta=F.softplus(y, 2, 3), logsigmoid=F.logsigmoid(x), mish=F.mish(x), softsign=F.softsign(y),
            tanhshrink=F.tanhshrink(y), logaddexp=torch.logaddexp(x, row), glu=F.glu(x[:, :, 1:]),
            glu_first=F.glu(y, 0), expm1=y.expm1(), log1p=p.log1p(), erf=x.erf(),
            std=x.std(), std_1=y.std(1), std_keep=x.std((0, 2), unbiased=False, keepdim=True),
            flip=x.flip(1) * y, flip_two=y.flip((0, -1)) * x, roll=x.roll(2, 1) * y, roll_two=y.roll((1, -3), (0, 2)) * x,
            roll_flat=x.roll(7) * y, repeat_interleave=x.repeat_interleave(3, 1).tanh(), tile=y.tile(2, 1, 3).tanh(),
            erfinv=(0.9 * torch.tanh(x)).erfinv(), lgamma=p.lgamma(), lgamma_below=(2 * x).lgamma().clamp(-2, 2), digamma=p.digamma())
    return t, f


def reductions():
    t = dict(x=torch.randn(S), y=torch.randn(S), n=whole(-3, 4, *S), mask=truths(*S))

    def f(x, y, n, mask):
        return dict(
            sum=x.sum(), sum_0=x.sum(0), sum_02=y.sum((0, 2)), sum_keep=x.sum(-1, True), sum_whole=n.sum(1),
            sum_truths=mask.sum(2), mean=(x * y).mean(), mean_1=x.mean(1), mean_keep=y.mean((1, 2), True),
            var=x.var(), var_1=x.var(1), var_02=y.var((0, 2), keepdim=True), amax=x.amax(-1),
            amax_02=y.amax((0, 2)), amax_ties=(x - 1).relu().amax(1), amin=x.amin(0), amin_all=y.amin(),
            amax_whole=n.amax(1), max=x.max(), max_1=x.max(1)[0], max_1_index=x.max(1)[1],
            min_0=y.min(0, True)[0], min_0_index=y.min(0)[1], argmax=x.argmax(-1), argmax_all=x.argmax(),
            argmin=x.argmin(1, True), argmax_first=n.argmax(1), norm=x.norm(), norm_1=x.norm(1, -1),
            norm_2=x.norm(2, (1, 2), True), norm_3=y.norm(3, 0), norm_0=x.relu().norm(0, 0),
            norm_inf=x.norm(math.inf, 1), norm_inf_least=x.norm(-math.inf, 1), logsumexp=x.logsumexp(1),
            logsumexp_keep=y.logsumexp(0, True), cumsum_0=x.cumsum(0), cumsum_1=y.cumsum(1),
            cumsum_2=x.cumsum(-1), cumsum_whole=n.cumsum(1),
            of_sums=(x.sum(2) * y.mean(2)).exp().sum(1, True).log())
    return t, f


def losses():
    t = dict(x=torch.randn(S), y=torch.randn(S), gain=torch.randn(5), shift=torch.randn(5),
             gains=torch.randn(6, 5), shifts=torch.randn(6, 5), sparse=whole(-1, 5, 4, 6),
             share=torch.randn(24, 5), second=whole(0, 6, 4, 5))
    t["class"] = whole(0, 5, 4, 6)

    def f(x, y, gain, shift, gains, shifts, sparse, share, weight, second, **more):
        classes, sparse = more["class"].long().flatten(), sparse.long().flatten()

        def cross(x, classes, **how):
            return F.cross_entropy(x.reshape(-1, 5), classes, **how)
        return dict(
            softmax_0=x.softmax(0), softmax_1=y.softmax(1), softmax_2=x.softmax(-1),
            log_softmax_0=y.log_softmax(0), log_softmax_1=x.log_softmax(1), log_softmax_2=y.log_softmax(-1),
            cross_entropy=cross(x, classes), cross_entropy_sum=cross(y, classes, reduction="sum"),
            cross_entropy_each=cross(x, classes, reduction="none").view(4, 6),
            cross_entropy_sparse=cross(y, sparse, ignore_index=-1),
            cross_entropy_sparse_each=cross(x, sparse, ignore_index=-1, reduction="none").view(4, 6),
            nll=F.nll_loss(x.log_softmax(-1).view(-1, 5), classes),
            nll_sparse=F.nll_loss(y.reshape(-1, 5), sparse, ignore_index=-1, reduction="sum"),
            mse=F.mse_loss(x, y), mse_each=F.mse_loss(x, y, reduction="none"),
            layer_norm=F.layer_norm(x, (5,), gain, shift),
            layer_norm_two=F.layer_norm(y, (6, 5), gains, shifts, 1e-3), layer_norm_plain=F.layer_norm(x, (6, 5)),
            cross_entropy_weight=cross(x, sparse, weight=weight, ignore_index=-1),
            cross_entropy_smooth=cross(y, classes, label_smoothing=0.25),
            cross_entropy_both=cross(x, classes, label_smoothing=0.1, weight=weight, reduction="none").view(4, 6),
            cross_entropy_smooth_sparse=cross(x, sparse, label_smoothing=0.1, weight=weight, ignore_index=-1),
            cross_entropy_second=F.cross_entropy(x, second.long()),
            cross_entropy_square=F.cross_entropy(x[:, :5], classes.view(4, 6)[:, :5]),
            cross_entropy_last=cross(x[:, 1:], classes.view(4, 6)[:, :5].flatten()),
            nll_square=F.nll_loss(y[:, :5], classes.view(4, 6)[:, :5], reduction="none"),
            cross_entropy_shares=F.cross_entropy(x.flatten(0, 1), share.softmax(1), label_smoothing=0.1, weight=weight),
            nll_weight=F.nll_loss(x.reshape(-1, 5), classes, weight), mse_sum=F.mse_loss(x, y, reduction="sum"),
            mse_weight=F.mse_loss(x, y, weight=weight.expand(4, 6, 5)), l1=F.l1_loss(x, y),
            huber=F.huber_loss(x, y, "mean", 0.5), smooth_l1=F.smooth_l1_loss(x, y, beta=2, reduction="none"),
            binary=F.binary_cross_entropy_with_logits(x, y.sigmoid(), pos_weight=weight),
            logsumexp_two=x.logsumexp((0, 2)),
            rms_norm=F.rms_norm(x, (5,), gain, 1e-5), rms_norm_weight=F.rms_norm(y, (6, 5), gains, 2 ** -23),
            rms_norm_plain=F.rms_norm(y, (6, 5), None, 2 ** -23))
    return t, f, dict(weight=torch.rand(5) + 0.5)


def layers():
    t = dict(x=torch.randn(S), y=torch.randn(S), image=torch.randn(4, 6, 3, 4), gain=torch.randn(6), shift=torch.randn(6),
             zeros=torch.randn(4, 7), w=torch.randn(5, 5), number=whole(0, 7, 24))

    def f(x, y, image, gain, shift, zeros, w, number, mean, variance):
        h, last, outputs = torch.zeros_like(x[:, 0]), x[:, 0], []
        for i in range(6):
            last = (last @ w + y[:, i]).tanh()
            h = h * y[:, i].sigmoid() + x[:, i]
            outputs.append(h * 2)
        return dict(
            group_norm=F.group_norm(x, 2, gain, shift, 1e-3), group_norm_plain=F.group_norm(image, 3),
            group_norm_row=F.group_norm(x[:, :, 1], 2) + shift,
            instance_norm=F.instance_norm(image, eps=0.01) * gain.view(6, 1, 1),
            batch_norm=F.batch_norm(image, None, None, gain, shift, True, 0.1, 1e-4),
            batch_norm_row=F.batch_norm(x[:, :, 0], None, None, training=True),
            batch_norm_running=F.batch_norm(image, None, None, training=True),
            batch_norm_eval=F.batch_norm(x, mean, variance, gain, shift),
            cumprod=x.cumprod(1), cumprod_last=y.cumprod(-1).tanh(), cumprod_zeros=zeros.relu().cumprod(1),
            bincount=number.bincount(minlength=9), scan=last, scan_outputs=torch.stack(outputs, 1),
            bincount_weights=torch.zeros(7, dtype=x.dtype).index_add(0, number.long(), x[:, :, 0].flatten()).exp())
    return t, f, dict(mean=torch.randn(6), variance=torch.rand(6) + 0.5)


def views():
    t = dict(x=torch.randn(S), y=torch.randn(S), z=torch.randn(2, 6, 5), narrow=torch.randn(4, 1, 5),
             wide=torch.randn(12, 10), n=whole(-3, 4, *S))

    def f(x, y, z, narrow, wide, n):
        a, b, c = x.split(2, 1)
        d, e, g = y.split((2, 1, 2), -1)
        h, i = x.chunk(2)
        j, k, m = x.chunk(3, 2)
        return dict(
            merge_first=x.view(24, 5).tanh(), merge_last=x.reshape(4, -1).tanh(), split_first=y.view(2, 2, 6, 5) * 2,
            split_middle=x.view(4, 3, 2, 5).sin(), split_merge=x.view(4, 3, 10).exp(), no_nest=y.view(8, 3, 5).exp(),
            all=x.flatten().sin(), flatten=y.flatten(1) * x.flatten(1), unflatten=x.unflatten(1, (2, 3)).tanh(),
            there_and_back=x.view(24, 5).tanh().view(4, 6, 5) * y, squeeze=narrow.squeeze(1).exp(),
            squeeze_all=narrow.squeeze() * 3, unsqueeze=x.unsqueeze(2).exp(), permute=x.permute(2, 0, 1).exp(),
            transpose=y.transpose(-1, 1), t=wide.t(), expand=narrow.expand(4, 6, -1) * x,
            expand_new=narrow.expand(3, 4, 6, 5).sin(), narrow=x.narrow(1, 2, 3).exp(),
            narrow_first=x.narrow(0, 1, 2) * z, slice=y[:, 1:-1:3], slice_first=x[::2].tanh(),
            select=x.select(1, -2) * narrow.select(1, 0), select_first=y[3].exp(), split=a * b - c,
            split_sizes=d * g + e, chunk=h * i.exp(), chunk_uneven=j * k + m, cat_first=torch.cat((x, z, y)).exp(),
            cat_last=torch.cat((x, y), -1).exp(), cat_middle=torch.cat((narrow, x), 1),
            stack=torch.stack((x, y), 1).sin(), stack_last=torch.stack((x, y), -1).sin(),
            pad=F.pad(x, (0, 0, 1, 2)).exp(), pad_value=F.pad(y, (1, 2, 0, 0, 0, 1), value=2.5),
            pad_off=F.pad(x, (-1, 0, 1, -2)).exp(), tril=wide.tril(), tril_up=x.tril(1) * 2, triu=wide.triu(-2),
            triu_up=y.exp().triu(2), every=x[:, ::2].exp(),
            spread=torch.stack((y, torch.zeros_like(y)), -1).flatten(-2)[..., :-1].exp(), whole_view=n.transpose(0, 1) * 2, whole_cat=torch.cat((n, n * 3)),
            replicate=x * y, arange=torch.arange(4), arange_step=x.sum(2) * torch.arange(1, 2.5, 0.25),
            made=2.5 * x + 1 + 3)
    return t, f


def indices():
    t = dict(x=torch.randn(S), y=torch.randn(S), table=torch.randn(7, 5), columns=torch.randn(4, 9, 5),
             ids=whole(0, 7, 4, 6), at=whole(0, 6, 4, 3, 5), small=whole(0, 6, 2, 3, 4),
             order=torch.rand(S).argsort(1).int(), picks=whole(0, 6, 8), rows=whole(0, 4, 3))

    def f(x, y, table, columns, ids, at, small, order, picks, rows):
        ids, at, small, order, picks, rows = (i.long() for i in (ids, at, small, order, picks, rows))
        return dict(
            embedding=F.embedding(ids, table), embedding_used=F.embedding(ids, table).exp() * x,
            gather=x.gather(1, at).exp(), gather_small=y.gather(1, small),
            gather_last=columns[:, :6].gather(2, order[..., :4].clamp(max=4)), scatter=x.scatter(1, order, y).exp(),
            scatter_number=x.scatter(1, at, 2.5), scatter_into=columns.scatter(1, order, y),
            scatter_add=x.scatter_add(1, at, y[:, :3]).sin(), scatter_add_small=y.scatter_add(1, small, columns[:2, :3, :4]),
            index_select=x.index_select(1, picks).exp(), index_select_first=y.index_select(0, rows),
            index_add=columns.index_add(1, picks, x.index_select(1, picks)).sin(),
            index_add_first=y.index_add(0, rows, x[:3]), one_hot=F.one_hot(ids, 7), sort=x.sort()[0],
            sort_index=x.sort(1, True)[1], sort_first=y.sort(0, True)[0].exp(), argsort=y.argsort(1),
            topk=x.topk(2)[0], topk_index=y.topk(3, 1)[1], topk_least=x.topk(3, 1, False)[0].exp(),
            scatter_reduce_sum=x.scatter_reduce(1, at, y[:, :3], "sum", include_self=False), scatter_reduce_mean=x.scatter_reduce(1, at, y[:, :3], "mean"),
            scatter_reduce_prod=x.scatter_reduce(1, order, y, "prod").tanh(), scatter_reduce_amax=x.scatter_reduce(1, at, y[:, :3], "amax").sin(),
            scatter_reduce_amin=y.scatter_reduce(1, at, x[:, :3].round(), "amin", include_self=False), cummax=x.cummax(1)[0], cummax_index=y.cummax(2)[1],
            cummin=y.cummin(1)[0].exp())
    return t, f


def products():
    t = dict(x=torch.randn(4, 6, 8), y=torch.randn(4, 8, 5), w=torch.randn(7, 8), bias=torch.randn(7),
             m=torch.randn(8, 6), many=torch.randn(3, 1, 6, 8), v=torch.randn(8), heads=torch.randn(4, 3, 6, 2),
             others=torch.randn(4, 3, 5, 2))

    def f(x, y, w, bias, m, many, v, heads, others):
        return dict(
            batched=x @ y, batch_row=x @ m, plain=x[1] @ y[2], turned=m.t() @ w.t(), broadcast=many @ y,
            matrix_vector=x @ v, vector_matrix=v @ y, dot=v @ v, linear=F.linear(x, w, bias),
            linear_plain=F.linear(many, w), chain=F.linear(x, w, bias).tanh() @ w @ y,
            scores=torch.einsum("bhqd,bhkd->bhqk", heads, others).softmax(-1), outer=torch.einsum("i,j->ij", v, bias),
            einsum_sum=torch.einsum("bik->ib", x), einsum_own=torch.einsum("bik,bkj->bj", x, y),
            einsum_mixed=torch.einsum("bhqd,bkn->nbh", heads, y @ y[:, :5, :1].expand(4, 5, 7)),
            no_dims=torch.einsum("i,j->j", bias, v))
    return t, f


def attention():
    t = dict(q=torch.randn(4, 6, 5, 8), k=torch.randn(4, 6, 5, 8), v=torch.randn(4, 6, 5, 6),
             few_k=torch.randn(4, 2, 7, 8), few_v=torch.randn(4, 2, 7, 4), bias=torch.randn(6, 5, 5),
             mask=truths(4, 1, 5, 7))
    t["mask"][..., 3] = True
    turn = torch.rand(5, 4) * 6
    t.update(sinks=torch.randn(6), row_bias=torch.randn(4, 1, 1, 7), padding=truths(4, 1, 1, 7))
    t["padding"][..., 2] = True
    fixed = dict(cos=turn.cos(), sin=turn.sin(), documents=torch.randint(3, (4, 5)).sort(1)[0].int(),
                 any_documents=torch.randint(2, (4, 5)).int())

    def attend(q, k, v, causal=False, mask=None, scale=None):
        k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], 1) for x in (k, v))
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal, scale=scale)

    def halves(x, cos, sin):
        a, b = x.chunk(2, -1)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)

    def pairs(x, cos, sin):
        a, b = x[..., ::2], x[..., 1::2]
        return torch.stack((a * cos - b * sin, b * cos + a * sin), -1).flatten(-2)

    def table(n, size, theta):
        angle = torch.arange(n).double().view(-1, 1) / theta ** (torch.arange(0, size, 2).double() / size)
        return angle.cos(), angle.sin()

    def attend_by_hand(q, k, v, scale=None, bias=None, softcap=None, window=None, causal=False, documents=None,
                       sinks=None):
        k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], 1) for x in (k, v))
        s = q @ k.transpose(-1, -2) * (scale or q.shape[-1] ** -0.5)
        s = softcap * (s / softcap).tanh() if softcap else s
        s = s if bias is None else s + bias
        ahead = torch.arange(k.shape[2]) - torch.arange(q.shape[2]).view(-1, 1)
        seen = (ahead > -window if window else ahead == ahead) & (ahead <= 0 if causal else ahead < (window or 1000))
        if documents is not None:
            seen = seen & (documents[:, None, :, None] == documents[:, None, None, :])
        s = s.masked_fill(~seen, -math.inf)
        if sinks is not None:
            s = torch.cat((s, sinks.view(1, -1, 1, 1).expand(*s.shape[:3], 1)), -1)
        return s.softmax(-1)[..., :k.shape[2]] @ v

    def f(q, k, v, few_k, few_v, bias, mask, sinks, row_bias, padding, cos, sin, documents, any_documents):
        turn = [x.to(q.dtype) for x in table(5, 8, 500)]
        return dict(
            plain=attend(q, k, v), causal=attend(q, k, v, True), scaled=attend(k, q, v, scale=0.7),
            groups=attend(q, few_k, few_v), groups_causal=attend(q, k[:, :2], v[:, 2:4], True),
            masked=attend(q, few_k, few_v, mask=mask), biased=attend(q, k, v, mask=bias),
            rotary=halves(q, cos, sin), rotary_pairs=pairs(k, cos, sin).exp(), rotary_row=pairs(q, cos, sin),
            turned=attend(halves(q, *turn), halves(k, *turn), v, True), table_cos=table(9, 6, 10000)[0],
            table_sin=table(9, 6, 10000)[1], window=attend_by_hand(q, k, v, window=3, causal=True),
            window_around=attend_by_hand(q, few_k, few_v, window=2),
            softcap=attend_by_hand(q, k, v, softcap=2.5, causal=True), positional=attend(q, k, v, mask=bias, scale=0.25),
            softcap_window=attend_by_hand(q, k, v, scale=0.5, bias=bias, window=2, softcap=4),
            documents=attend_by_hand(q, k, v, causal=True, documents=documents),
            any_documents=attend_by_hand(q, k[:, :2], v[:, :2], documents=any_documents, softcap=3),
            biased_documents=attend_by_hand(q, k, v, bias=bias, documents=documents),
            sinks=attend_by_hand(q, k, v, causal=True, window=2, sinks=sinks),
            sinks_documents=attend_by_hand(q, k, v, documents=any_documents, sinks=sinks, bias=bias),
            row_bias=attend(q, few_k, few_v, mask=row_bias), padding=attend(q, few_k, few_v, mask=padding))
    return t, f, fixed


def images():
    t = dict(x=torch.randn(4, 6, 9, 8), w=torch.randn(5, 6, 3, 2), bias=torch.randn(5), grouped=torch.randn(6, 2, 3, 3),
             each=torch.randn(12, 1, 3, 3), one=torch.randn(4, 6, 1, 1), line=torch.randn(4, 6, 11),
             line_w=torch.randn(8, 3, 3), turned_w=torch.randn(6, 4, 3, 2), turned_line=torch.randn(6, 2, 4),
             five=torch.randn(5))

    def f(x, w, bias, grouped, each, one, line, line_w, turned_w, turned_line, five):
        h = F.max_pool2d(F.conv2d(x, grouped, groups=3).relu(), 2)
        return dict(
            plain=F.conv2d(x, w, bias), padded=F.conv2d(x, w, stride=(2, 1), padding=(1, 2), dilation=(1, 3)),
            groups=F.conv2d(x, grouped, groups=3, stride=2, padding=1).tanh(),
            depthwise=F.conv2d(x, each, groups=6, padding=1), one_by_one=F.conv2d(x, one), pool=F.max_pool2d(x, 2),
            pool_padded=F.max_pool2d(x, (3, 4), (2, 1), (1, 1)).exp(),
            pool_negative=F.max_pool2d(-x.exp(), 3, (2, 3), (0, 1)), network=F.conv2d(h, one).tanh(),
            same=F.conv2d(x, w, bias, padding="same"), positional=F.conv2d(x, w, bias, 2, 1, (1, 2)),
            conv1d=F.conv1d(line, line_w, None, 2, 1, 2, 2),
            conv1d_same=F.conv1d(line, line_w, padding="same", groups=2).tanh(), alone=F.conv2d(x[1], w, bias),
            transposed=F.conv_transpose2d(x, turned_w, None, (2, 2), (1, 2), (1, 1)).tanh(),
            transposed_plain=F.conv_transpose2d(x, turned_w[:, :1].expand(6, 5, 3, 2), five, padding=(0, 1), dilation=(2, 2)),
            transposed_groups=F.conv_transpose1d(line, turned_line, stride=3, groups=2, output_padding=1).exp(),
            max_pool1d=F.max_pool1d(line, 3, stride=3, ceil_mode=True), max_pool_up=F.max_pool2d(x, 2, 2, ceil_mode=True),
            avg_pool=F.avg_pool2d(x, 2).exp(), avg_pool_padded=F.avg_pool2d(x, (3, 4), (2, 1), (1, 1)).exp(),
            avg_pool_own=F.avg_pool2d(x, 3, stride=(2, 3), padding=1, ceil_mode=True, count_include_pad=False),
            avg_pool_up=F.avg_pool2d(x, 3, stride=2, padding=1, ceil_mode=True),
            avg_pool_by=F.avg_pool2d(x, 3, divisor_override=2), avg_pool1d=F.avg_pool1d(line, 3, 2, 1),
            adaptive=F.adaptive_avg_pool2d(x, (3, 2)).exp(), adaptive_one=F.adaptive_avg_pool2d(x, 1),
            adaptive_odd=F.adaptive_avg_pool2d(x, (4, None)).exp(), adaptive1d=F.adaptive_avg_pool1d(line, 4),
            nearest=F.interpolate(x, scale_factor=2).exp(), nearest_odd=F.interpolate(x, (5, 13)),
            nearest_line=F.interpolate(line, scale_factor=2.5),
            bilinear=F.interpolate(x, scale_factor=(2, 1.5), mode="bilinear").exp(),
            bilinear_down=F.interpolate(x, size=(4, 5), mode="bilinear"),
            bilinear_corners=F.interpolate(x, (13, 11), None, "bilinear", True),
            linear=F.interpolate(line, size=7, mode="linear"), area=F.interpolate(x, size=4, mode="area"))
    return t, f


def composed():
    t = dict(x=torch.randn(S), y=torch.randn(S), p=0.1 + 0.8 * torch.rand(S), row=torch.randn(5), a=torch.randn(3, 4), b=torch.randn(4, 6),
             c=torch.randn(6, 3), volume=torch.randn(2, 4, 5, 6, 4), kernel=torch.randn(6, 2, 3, 2, 3) / 5, image=torch.randn(2, 8, 3, 4),
             tiles=torch.randn(2, 3, 3, 4, 6), n=whole(-40, 40, *S), m=whole(1, 8, *S), side=whole(0, 2, 4, 6) * 2 - 1)

    def f(x, y, p, row, a, b, c, volume, kernel, image, tiles, n, m, side):
        gu, gv = torch.meshgrid(row, a[:, 0], indexing="ij")
        hu, hv = torch.meshgrid(row, a[:, 0], indexing="xy")
        u, v, w, *_ = x.unbind(1)
        zero = x.clamp_min(0)
        side = side.to(x.dtype)
        return dict(
            floor=(3 * x).floor() * y, ceil=(3 * x).ceil() * y, trunc=(3 * x).trunc() * y, round=torch.round(n / 2) * y, frac=(3 * x).frac(),
            sign=x.sign() * y, remainder=x % p, remainder_number=torch.remainder(x, -0.3), fmod=torch.fmod(x, p), floor_divide=x.detach() // p.detach() * y,
            remainder_whole=n % m, remainder_of_large=n * 40000001 % 97, remainder_below=n % -7, fmod_whole=torch.fmod(n, m),
            quotient_whole=n // m, div_trunc=torch.div(n, 7, rounding_mode="trunc"), isnan=(zero / zero).isnan(),
            isfinite=x.clamp(0, 0.5).reciprocal().isfinite(), any=(x > 1).any(1), all=torch.all(n, -1, True),
            any_all=(x > 100).any() | (x > -100).all(), prod=x.prod(1), prod_keep=y.prod(-1, True), prod_all=(1 + a / 10).prod(),
            likes=x * torch.full_like(x, 2.5) + 1, linspace=x * torch.linspace(-1, 3.7, 5), meshgrid=gu * gv + gu, meshgrid_xy=hu.exp() + hv,
            unbind=u * v + w, diagonal=x.diagonal(0, 0, 2), diagonal_above=y.diagonal(1, 1, 2), diagonal_below=y.diagonal(-2, 1, 2),
            types=x.bfloat16().to(x.dtype) + n * n - 1, mm=a @ b, bmm=x.bmm(y.mT), mv=c.mv(a[:, 1]), dot=row @ row.exp(), outer=torch.outer(row, a[:, 1]),
            einsum_three=torch.einsum("ab,bc,ca", a, b, c).expand(3), einsum_chain=a @ b @ c, einsum_dots=x @ y.mT, einsum_no_arrow=a @ b,
            einsum_order=x.permute(2, 1, 0), einsum_twin=(a @ b @ c).diagonal(), einsum_trace=(a @ b @ c).trace(),
            einsum_broadcast=torch.einsum("ij...,ij...->ij", x[:1].expand(S), y), einsum_capital=torch.einsum("aBc,c,aBc->ac", x, row, y),
            normalize=F.normalize(x), normalize_one=F.normalize(y, p=1, dim=-1, eps=3), cosine=F.cosine_similarity(x, y),
            cosine_row=F.cosine_similarity(x, row, -1), distance=F.pairwise_distance(x, y), kl_div=F.kl_div(x, p, reduction="batchmean"),
            kl_div_log=F.kl_div(x, y, reduction="none", log_target=True), bce=F.binary_cross_entropy(p, x.sigmoid()),
            bce_steep=F.binary_cross_entropy((2 * x).sigmoid(), p, reduction="none"), poisson=F.poisson_nll_loss(x, 5 * p, full=True),
            poisson_plain=F.poisson_nll_loss(p, y, log_input=False, reduction="none"), gaussian=F.gaussian_nll_loss(x, y, p, full=True),
            ranking=F.margin_ranking_loss(x[..., 0], y[..., 0], side, 0.3), hinge=F.hinge_embedding_loss(x[..., 1], side, reduction="none"),
            soft_margin=F.soft_margin_loss(x[..., 2], side), multilabel=F.multilabel_soft_margin_loss(x.view(24, 5), p.view(24, 5)),
            cosine_embedding=F.cosine_embedding_loss(x.flatten(0, 1), y.flatten(0, 1), side.flatten(), -0.2, reduction="none"),
            triplet=F.triplet_margin_loss(x, y, p, swap=True), conv3d=F.conv3d(volume, kernel, None, (2, 2, 1), (1, 0, 0), 1, 2).tanh(),
            conv3d_same=F.conv3d(volume, kernel, padding="same", groups=2), pixel_shuffle=F.pixel_shuffle(image, 2),
            pixel_unshuffle=F.pixel_unshuffle(tiles, 2).tanh(),
            conv_transpose3d=F.conv_transpose3d(F.conv3d(volume, kernel, None, (2, 2, 1), (1, 0, 0), 1, 2), kernel, a[0], (2, 1, 3), (1, 0, 1), (1, 0, 2), 2, (1, 2, 1)))
    return t, f


def typed():
    t = dict(x=torch.randn(S), y=torch.randn(S), p=0.1 + 0.8 * torch.rand(S), row=torch.randn(5), a=torch.randn(3, 4), b=torch.randn(4, 6),
             c=torch.randn(3, 6), q=torch.randn(5, 5), three=torch.randn(4, 3, 2), n=whole(-40, 40, *S), taken=whole(0, 6, 4, 1, 5),
             places=torch.tensor([4, 0, 3]).to(torch.int32))

    def f(x, y, p, row, a, b, c, q, three, n, taken, places):
        of_x = "asinh atan cosh deg2rad erfc exp2 rad2deg sinc sinh absolute negative"
        of_p = "acos asin atanh log10 log2 tan logit"
        found = {k: getattr(torch, k)(x) for k in of_x.split()} | {k: getattr(torch, k)(p) for k in of_p.split()}
        first, second, _ = y.tensor_split((2, 4), dim=1)
        u, v, w = x.tensor_split(3, 1)
        low, high = x.aminmax(dim=0)
        kth, at = y.kthvalue(2, dim=1, keepdim=True)
        eye = torch.eye(5, dtype=x.dtype)

        bad = torch.where(x > 0, 0, torch.nan)
        return dict(
            **found, acosh=torch.acosh(p + 1), infinite=(x.relu().log().isneginf().to(x.dtype) - p.isposinf().to(x.dtype)) * y,
            fix=(3 * x).fix() * y, atan2=torch.atan2(x, y), copysign=p.copysign(y),
            fmax=torch.fmax(x, y) + torch.fmin(x, p + bad), hypot=x.hypot(y), ldexp=x.ldexp(n / 20),
            logical_xor=torch.logical_xor(n, x > 0), xlogy=torch.xlogy(n, p) + x.xlogy(p), heaviside=torch.heaviside(x.relu().detach(), row.detach()) * y,
            float_power=p.float_power(2.5), logit_held=x.logit(eps=0.3), isclose=x.isclose(y, rtol=0.3, atol=0.2),
            addcmul=x.addcmul(y, row, value=0.3), addcdiv=torch.addcdiv(x, y, p, value=-2),
            aliases=x.multiply(y).subtract(p, alpha=2).divide(p) + x.true_divide(p) + x.greater(0) * 2 + y.less(0.5) * 1. + x.greater_equal(y) * 1.
            - torch.less_equal(x, 0.2) * 1. + n.not_equal(3),
            addmm=torch.addmm(c, a, b, beta=0.5, alpha=2), baddbmm=torch.zeros(4, 6, 6, dtype=x.dtype).baddbmm(x, y.adjoint()),
            addbmm=torch.addbmm(x[:1].sum().expand(6, 6), x, y.swapaxes(1, 2), alpha=0.5), addmv=a[:, 2].addmv(c, b[1]),
            addr=torch.addr(torch.ones(5, 4, dtype=x.dtype), row, a[1], beta=3, alpha=-1), inner=x.inner(q), kron=a.kron(b), vdot=row.vdot(row.exp()),
            cross=three.cross(three.sin(), dim=1), matrix_power=(q / 3).matrix_power(3), det=q.det() / 10,
            det_singular=torch.stack([torch.cat([q[3:4], q[:4]]), q]).det() / 10, logdet=(q @ q.T + 3 * eye).logdet(),
            inverse=(q + 4 * eye).inverse() * 5, nansum=(y + bad).nansum(1), nanmean=torch.nanmean(p * y + bad, -1, True),
            count_nonzero=torch.count_nonzero(n.relu(), 1), aminmax=high - 2 * low, median=x.median(-1)[0], median_all=a.median(),
            kthvalue=kth * (1 + at), logcumsumexp=x.logcumsumexp(1), dist=x.dist(y, 3), trace=q.trace() * q.ravel()[7], diff=x.diff(dim=1),
            diff_twice=torch.diff(x, 2, -1, y[..., :1]), flips=x.fliplr() * y.flipud(), rot90=x.rot90(1, (0, 1)).exp(),
            movedim=x.movedim(-1, 0) * torch.moveaxis(y, (0, 1), (1, 2)), diag=row.diag() @ q + q.diag(0), diag_embed=torch.diag_embed(a, 1), diag_embed_before=torch.diag_embed(a, -1, 0, 2) * row,
            tensor_split=u * v + w.exp() + first * second, take_along_dim=x.take_along_dim(taken.long(), 1),
            index_fill=x.index_fill(1, places.long(), 0.5), index_copy=x.index_copy(1, torch.arange(3) * 2, y[:, 1:4]),
            masked_scatter=x.masked_scatter(y > 0, p), of_tensor=x * 2.5, stacks=torch.cat([torch.hstack((a, c)), torch.vstack((q, q.exp()))[:3]], 1), cdist=torch.cdist(a, a + 1), tensordot=torch.tensordot(x, y, ((1, 2), (1, 2))), tensordot_two=torch.tensordot(a, b, 1), block_diag=torch.block_diag(a, c), lerp=x.lerp(y, p) - torch.lerp(y, p, 0.3), nan_to_num=torch.nan_to_num(bad + x.detach().relu().log(), 0.5, None, -3) * y, windows=x.unfold(1, 2, 2).exp())
    return t, f


def typed_layers():
    t = dict(x=torch.randn(2, 4, 6, 5), line=torch.randn(2, 4, 6), volume=torch.randn(2, 3, 4, 5, 6), columns=torch.randn(2, 12, 20),
             grid=torch.rand(2, 3, 4, 2) * 1.8 - 0.9, theta=torch.randn(2, 2, 3), u=torch.randn(5, 3), v=torch.randn(5, 4), form=torch.randn(2, 3, 4),
             rows=torch.randn(7, 3), scores=torch.randn(6, 5), bags=whole(0, 7, 4, 3), classes=whole(0, 5, 6), bag_weights=torch.randn(4, 3),
             five=torch.randn(5), places=torch.rand(2, 2, 3, 2, 3) * 1.8 - 0.9,
             padded=torch.tensor([[2, 0, 3], [2, 2, 2], [1, 5, 6], [4, 4, 2]], dtype=torch.int32))
    nn = torch.nn

    def f(x, line, volume, columns, grid, theta, u, v, form, rows, scores, bags, classes, bag_weights, five, places, padded):
        both = dict(
            hardshrink=F.hardshrink(x, 0.3), softshrink=F.softshrink(x), threshold=F.threshold(x, 0.1, -3), softmin=F.softmin(x, 1),
            response=F.local_response_norm(x, 3, 0.1, 0.5, 2), max_pool3d=F.max_pool3d(volume, 2),
            avg_pool3d=F.avg_pool3d(volume, (2, 3, 2), 2, (1, 1, 0)), adaptive_max_pool1d=F.adaptive_max_pool1d(line, 4), lp_pool2d=F.lp_pool2d(x, 2, 2))
        return dict(
            **both, **{"module_" + k: y for k, y in both.items()}, softmax2d=nn.Softmax2d()(x), unflatten=nn.Unflatten(1, (2, 2))(x),
            shuffle=F.channel_shuffle(x, 2).exp(), module_shuffle=nn.ChannelShuffle(2)(x), zeros_around=nn.ZeroPad2d((1, 2, 3, 0))(x),
            constant_around=nn.ConstantPad1d((1, 2), 3.5)(line), reflected=nn.ReflectionPad2d((1, 2, 1, 3))(x),
            replicated=nn.ReplicationPad1d((2, 1))(line), around=nn.CircularPad2d(1)(x),
            windows=F.unfold(x, (3, 2), 1, (0, 1), (2, 1))[..., :8], unfold=nn.Unfold(2)(x), fold=F.fold(columns, (6, 5), 2).sin(),
            module_fold=nn.Fold((6, 5), (2, 2))(columns), adaptive_avg_pool3d=F.adaptive_avg_pool3d(volume, (2, 3, 3)),
            adaptive_max_pool2d=nn.AdaptiveMaxPool2d((4, 3))(x), lp_pool1d=F.lp_pool1d(line.abs() + 0.1, 3, 3),
            nearest2d=nn.UpsamplingNearest2d(scale_factor=2)(x).exp(), module_nearest2d=nn.UpsamplingNearest2d(scale_factor=2)(x), bilinear2d=nn.UpsamplingBilinear2d((9, 7))(x),
            batch_norm3d=nn.BatchNorm3d(3, affine=False, track_running_stats=False)(volume), instance_norm3d=nn.InstanceNorm3d(3)(volume),
            grid_sample=F.grid_sample(x, grid, align_corners=False),
            grid_border=F.grid_sample(x, grid * 1.5, padding_mode="border", align_corners=True), affine_grid=F.affine_grid(theta, (2, 1, 3, 4), False),
            bilinear=F.bilinear(u, v, form, u[0, :2]), pdist=F.pdist(u), bag_mean=F.embedding_bag(bags, rows),
            bag_max=F.embedding_bag(bags, rows, mode="max"), bag_sum=F.embedding_bag(bags, rows, mode="sum", per_sample_weights=bag_weights),
            grid_nearest=F.grid_sample(x, grid, "nearest", "reflection", True), grid_reflection=F.grid_sample(x, grid * 2.5, "bilinear", "reflection", False),
            grid_volume=F.grid_sample(volume, places, align_corners=False),
            grid_volume_border=F.grid_sample(volume, places * 1.5, "bilinear", "border", True),
            grid_volume_nearest=F.grid_sample(volume, places * 1.2, "nearest", align_corners=False),
            **{"bag_padded_" + mode: F.embedding_bag(padded, rows, mode=mode, padding_idx=2) for mode in ("mean", "max", "sum")},
            bag_padded_last=F.embedding_bag(bags, rows, mode="sum", padding_idx=-2, per_sample_weights=bag_weights),
            multi_margin=F.multi_margin_loss(scores, classes.long(), 2, 0.7, five.detach().exp()),
            module_multi_margin=nn.MultiMarginLoss(reduction="none")(scores, classes.long()))
    return t, f


# Their numbers: counter (index, 0, stream, step), key (seed 1, 0).
def philox(index, stream, step):
    c, k = [index, 0, stream, step], [1, 0]
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(b >> 32) ^ c[1] ^ k[0], b & 0xFFFFFFFF, (a >> 32) ^ c[3] ^ k[1], a & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c[0]


def kept(x, p, stream, step):
    """1 / (1 - p) where the element stays, else 0; as many stay as it should be, all but by chance."""
    uniform = [(philox(i, stream, step) >> 8) / 2 ** 24 for i in range(x.numel())]
    mask = torch.tensor([float(u >= float(torch.tensor(p))) for u in uniform], dtype=x.dtype).view(x.shape)
    assert abs(mask.mean() - (1 - p)) < 4 * math.sqrt(p * (1 - p) / x.numel()), (stream, step, mask.mean())
    return mask / (1 - p)


def dropout():
    sizes = (6, 4, 10)
    t = dict(x=torch.randn(sizes), y=torch.randn(sizes))

    def f(x, y, step=None):
        streams = iter(range(100))

        def drop(x, p):
            return x if step is None else x * kept(x, p, next(streams), step)
        found = dict(dropout=drop(x, 0.3), again=drop(x, 0.3), of_function=drop((y * 2).flatten(1), 0.5),
                     of_sum=drop(y.sum(1), 0.9), turned=drop(y.permute(2, 0, 1), 0.1))
        layers = x
        for _ in range(3):
            layers = drop(layers * 1.5, 0.25) + layers

        def attention(q, k, v, p, mask=0):
            return drop((q @ k.transpose(2, 3) / q.shape[3] ** 0.5 + mask).softmax(3), p) @ v
        k, x1, y1 = y[:, None, :, :5], x[:, None], y[:, None]
        found.update(attention=attention(x.view(6, 4, 2, 5).transpose(1, 2), k, k * 2, 0.3),
                     causal_attention=attention(x1, y1, y1, 0.5, torch.full((4, 4), -torch.inf).triu(1)))
        def scaled(x, left, p):  # SELU's: left is 0 or 1
            low = -1.7580993408473766
            a = ((1 - p) * (1 + p * low ** 2)) ** -0.5
            return (x * left + low * (1 - left)) * a - a * low * p

        def drop_parts(x, dims, p, how=None):  # of the first dimensions
            if step is None:
                return x
            left = kept(torch.ones(x.shape[:dims] + (1,) * (x.dim() - dims)), p, next(streams), step).to(x.dtype)
            return how(x, left * (1 - p), p) if how else x * left
        found.update(dropout1d=drop_parts(x, 2, 0.4), dropout2d=drop_parts(y.view(6, 4, 5, 2), 2, 0.5),
                     module_dropout3d=drop_parts(x.view(6, 4, 5, 2, 1), 2, 0.3), alpha=drop_parts(x, 3, 0.2, scaled),
                     module_alpha=drop_parts(y, 3, 0.5, scaled), feature_alpha=drop_parts(x.view(6, 4, 5, 2), 2, 0.4, scaled),
                     alpha_always=x * 0 if step is not None else x)
        return dict(found, layers=layers, never=x + y, always=x * 0 if step else x)
    return t, f


# What a plan's own operators are to come to.
def custom():
    t = dict(x=torch.randn(S), w=torch.randn(5))

    def f(x, w):
        ramp = 1 + torch.arange(5) / 4
        return dict(swish=F.silu(x) * 2, swish_scaled=x.detach() * (1.5 * x.detach()).sigmoid(), ramp=x * ramp,
                    ramp_turned=(x.permute(2, 1, 0) * (1 + torch.arange(4) / 4)).exp(), weighed=x @ w,
                    weighed_twice=(x.tanh() @ w).exp().sum(1))
    return t, f


# A model with weights of its own, and a batch.
def modules():
    heads, groups, size, length, width, words = 4, 2, 4, 6, 8, 11
    shapes = {"embed.weight": (words, width), "image.0.weight": (4, 3, 3, 3), "image.0.bias": (4,),
              "image.3.weight": (6, 2, 3, 3), "image.6.weight": (width, 24), "image.6.bias": (width,),
              "scale": (width,), "mix.weight": (width, width), "mix.bias": (width,),
              "head.weight": (words, width)}
    for i in range(2):
        block = {"norm.weight": (width,), "norm2.weight": (width,), "norm2.bias": (width,),
                 "attention.wq.weight": (heads * size, width), "attention.wq.bias": (heads * size,),
                 "attention.wk.weight": (groups * size, width), "attention.wv.weight": (groups * size, width),
                 "attention.wo.weight": (width, heads * size), "attention.wo.bias": (width,),
                 "up.weight": (12, width), "up.bias": (12,), "gate.weight": (12, width),
                 "down.weight": (width, 12), "down.bias": (width,)}
        shapes.update({f"blocks.{i}.{name}": shape for name, shape in block.items()})
    weights = {name: torch.randn(shape) / max(1, math.prod(shape[1:])) ** 0.5 for name, shape in shapes.items()}
    batch = dict(words=whole(0, words, 4, length), image=torch.randn(4, 3, 8, 8), target=whole(0, words, 4, length))

    def logits(w, words, image, **_):
        def linear(name, x):
            return F.linear(x, w[name + ".weight"], w.get(name + ".bias"))

        def turned(x, n):
            x = x.view(4, length, n, size).transpose(1, 2)
            angle = torch.arange(length).view(-1, 1) / 100 ** (torch.arange(0, size, 2).double() / size)
            cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
            a, b = x.chunk(2, -1)
            return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)

        def attention(at, x):
            v = linear(at + "wv", x).view(4, length, groups, size).transpose(1, 2)
            y = F.scaled_dot_product_attention(turned(linear(at + "wq", x), heads),
                turned(linear(at + "wk", x), groups).repeat_interleave(heads // groups, 1),
                v.repeat_interleave(heads // groups, 1), is_causal=True)
            return linear(at + "wo", y.transpose(1, 2).flatten(2))
        h = F.max_pool2d(F.conv2d(image, w["image.0.weight"], w["image.0.bias"], padding=1).relu(), 2)
        h = F.gelu(F.conv2d(h, w["image.3.weight"], groups=2), approximate="tanh")
        x = w["embed.weight"][words.long()] + linear("image.6", h.flatten(1)).tanh().unsqueeze(1) * w["scale"]
        for at in "blocks.0.", "blocks.1.":
            x = x + attention(at + "attention.", F.rms_norm(x, (width,), w[at + "norm.weight"], 1e-4))
            h = F.layer_norm(x, (width,), w[at + "norm2.weight"], w[at + "norm2.bias"])
            x = x + linear(at + "down", F.silu(linear(at + "up", h)) * linear(at + "gate", h))
        x = F.layer_norm(x, (length, width))
        x = x + linear("mix", x).sigmoid() + F.gelu(x) + x.softmax(1)
        return linear("head", x)

    def entropy(y, how):
        return F.cross_entropy(y.transpose(1, 2), batch["target"].long(), reduction=how)
    return weights, batch, logits, entropy


# Modules of PyTorch, whose parameters are the program's.
def blocks():
    torch.manual_seed(102)
    nn = torch.nn
    tied = nn.ModuleDict(dict(a=nn.Linear(8, 8), b=nn.Linear(8, 8)))
    tied["b"].weight = tied["a"].weight
    tied["a"].register_buffer("shift", torch.randn(8))
    parts = nn.ModuleDict(dict(
        attention=nn.MultiheadAttention(8, 2), unlike=nn.MultiheadAttention(8, 2, bias=False, kdim=6, vdim=10),
        first=nn.MultiheadAttention(8, 4, batch_first=True), layer=nn.TransformerEncoderLayer(8, 2, 12, 0.0),
        before=nn.TransformerEncoderLayer(8, 2, 12, 0.0, "gelu", norm_first=True, batch_first=True),
        transformer=nn.Transformer(8, 2, 2, 2, 12, 0.0),
        encoder=nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 12, 0.0, norm_first=True), 2, enable_nested_tensor=False),
        decoder=nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 12, 0.0, "gelu", norm_first=True), 1),
        conv=nn.Conv3d(4, 6, (2, 3, 1), padding=(1, 0, 0)), dict=tied, list=nn.ParameterList([torch.randn(8), torch.randn(8)]),
        kept=nn.BatchNorm1d(8).eval(), padded=nn.Embedding(8, 5, padding_idx=3), weighted=nn.CrossEntropyLoss(torch.rand(8) + 0.5, label_smoothing=0.1)))
    parts["kept"].running_mean.normal_()
    parts["kept"].running_var.uniform_(0.5, 2)
    with torch.no_grad():
        for p in parts.parameters():
            p.add_(0.3 * torch.randn(p.shape))
    unseen = truths(3, 4)
    unseen[:, 1] = False
    forbidden = truths(5, 5)
    forbidden.fill_diagonal_(False)
    absent = truths(3, 5)
    absent[:, 2] = False
    given = dict(x=torch.randn(5, 3, 8), y=torch.randn(4, 3, 8), key=torch.randn(4, 3, 6), value=torch.randn(4, 3, 10),
                 row=torch.randn(7, 8), target=torch.randn(7, 8), volume=torch.randn(2, 4, 3, 5, 4))
    fixed = dict(unseen=unseen, forbidden=forbidden, absent=absent, bias=torch.randn(6, 5, 4), label=whole(0, 8, 7))

    def f(m, x, y, key, value, row, target, volume, unseen, forbidden, absent, bias, label):
        x1, alone, causal = x.transpose(0, 1), x[:, 0], torch.full((5, 5), -torch.inf, dtype=x.dtype).triu(1)
        both = dict(key_padding_mask=torch.zeros(3, 4, dtype=x.dtype).masked_fill(unseen, -torch.inf), attn_mask=bias)
        a, linear = m["attention"], m["dict"]
        return dict(
            attention=a(x, x, x)[0], attention_weights=a(x, x, x, attn_mask=forbidden)[1], attention_masked=a(x, y, y, unseen)[0],
            attention_added=a(x, y, y, attn_mask=bias)[0], attention_both=a(x, y, y, average_attn_weights=False, **both)[1],
            attention_unlike=m["unlike"](x, key, value)[0], attention_first=m["first"](x1, x1, x1, attn_mask=causal)[0],
            attention_alone=a(alone, alone, alone)[0], layer=m["layer"](x), layer_masked=m["layer"](x, forbidden),
            transformer=m["transformer"](x, y, forbidden, memory_key_padding_mask=absent), encoder=m["encoder"](x, src_key_padding_mask=absent),
            decoder=m["decoder"](y, x, torch.full((4, 4), -torch.inf, dtype=x.dtype).triu(1), None, None, absent, True),
            before=m["before"](x1, causal), conv=m["conv"](volume).tanh(),
            dict=linear["b"](linear["a"](row).tanh()) * linear["a"].shift, list=row * m["list"][0] + m["list"][1], kept=m["kept"](row),
            padded=m["padded"](label.long()).exp(),
            weighted=m["weighted"](row, label.long()), mse=F.mse_loss(row, target), cosine=F.cosine_similarity(row, target, -1))
    return parts, given, fixed, f


# ------------------------------------------------------------------------------------- what they come to

def weight(value, leaves):
    """Random, so that no case's gradients are lost among the others', and the loss is no sum of terms that
    cancel."""
    w = torch.randn(value.shape)
    if value.requires_grad:
        gradients = torch.autograd.grad((value * w).sum(), leaves, allow_unused=True, retain_graph=True)
        largest = max((g.abs().max().item() for g in gradients if g is not None), default=0)
        w /= largest if largest > 1e-3 else 1
    return w if (w * value).sum() > 0 else -w


def run(given, fixed, f, weights, dtype, steps=1):
    """What the frame of tests/operators does: gradients of the sum of f's outputs, each times its weight,
    and values; added up over the steps, where the inputs are less the gradients so far."""
    t = {name: x.to(dtype) if x.is_floating_point() else x for name, x in {**given, **fixed}.items()}
    leaves = [name for name, x in given.items() if x.is_floating_point()]
    found = {"gradient_" + name: torch.zeros_like(t[name]) for name in leaves}
    totals = []
    for step in range(1, steps + 1):
        now = {**t, **{name: (t[name] - found["gradient_" + name]).requires_grad_() for name in leaves}}
        y = {name: v.to(dtype) for name, v in (f(**now, step=step) if steps > 1 else f(**now)).items()}
        total = 0
        for name, v in y.items():
            if name not in weights:
                weights[name] = weight(v, [now[leaf] for leaf in leaves])
            total = total + (v * weights[name].to(dtype)).sum()
            total = total - (v.detach() * found.get("value_" + name, torch.zeros_like(v))).sum()
        gradients = torch.autograd.grad(total, [now[name] for name in leaves], allow_unused=True)
        for name, g in zip(leaves, gradients):
            found["gradient_" + name] += 0 if g is None else g
        for name, v in y.items():
            found["value_" + name] = v.detach() + found.get("value_" + name, 0)
        totals.append(total.detach())
    return found, totals


def same(a, b, what):
    apart = (a.double() - b.double()).abs().max()
    if apart > CLOSE * b.double().abs().max():
        sys.exit(f"{what}: float32 and float64 are {apart} apart: take other numbers")


def all_same(found, exact, totals, exact_totals, family):
    for key in found:
        same(found[key], exact[key], f"{family}: {key}")
    for total, exact_total in zip(totals, exact_totals):
        same(total, exact_total, f"{family}: the loss")


def losses_line(family, totals):
    return " ".join([family] + [f"{total.item():.9g}" for total in totals]) + "\n"


def write_cases(make, steps=1):
    family = make.__name__
    given, f, *rest = make()
    fixed = rest[0] if rest else {} # floating, without a gradient
    weights = {}
    found, totals = run(given, fixed, f, weights, torch.float32, steps)
    if family == "layers":
        norm = torch.nn.BatchNorm2d(6, momentum=0.3, affine=False)
        norm(given["image"])
        for name in "running_mean", "running_var":
            found["norm." + name] = getattr(norm, name)
    exact, exact_totals = run(given, fixed, f, weights, torch.float64, steps)
    all_same({name: x for name, x in found.items() if name in exact}, exact, totals, exact_totals, family)
    save(f"{family}.data.safetensors", {**given, **fixed, **{"weight_" + k: w for k, w in weights.items()}})
    save(f"{family}.trained.safetensors", found)
    outputs = {"value_" + k: v.float() for k, v in f(**given, **fixed).items()}
    save(f"{family}.outputs.safetensors", outputs)
    return losses_line(family, totals)


def write_blocks():
    parts, given, fixed, f = blocks()
    weights, found, begun = {}, [], dict(parts.state_dict())
    del begun["dict.b.weight"], begun["kept.num_batches_tracked"] # the first is tied
    for dtype in torch.float32, torch.float64:
        m = parts.to(dtype)
        trained = dict(m.named_parameters())
        t = {name: x.to(dtype) if x.is_floating_point() else x for name, x in {**given, **fixed}.items()}
        leaves = {name: t[name].requires_grad_() for name in given}
        y = f(m, **t)
        total = 0
        for name, v in y.items():
            if name not in weights:
                weights[name] = weight(v, list(leaves.values()))
            total = total + (v * weights[name].to(dtype)).sum()
        gradients = torch.autograd.grad(total, [*leaves.values(), *trained.values()])
        after = {"gradient_" + name: g for name, g in zip(leaves, gradients)}
        after |= {name: x.detach() - g for (name, x), g in zip(trained.items(), gradients[len(leaves):])}
        after |= {name: x.to(dtype) for name, x in begun.items() if name not in trained}
        outputs = {"value_" + name: v.detach() for name, v in y.items()}
        found.append(({**after, **outputs}, outputs, [total.detach()]))
    all_same(found[0][0], found[1][0], found[0][2], found[1][2], "blocks")
    zeros = {name: torch.zeros_like(x) for name, x in found[0][0].items() if name.startswith(("gradient_", "value_"))}
    save("blocks.weights.safetensors", {**begun, **zeros})
    save("blocks.data.safetensors", {**given, **fixed, **{"weight_" + k: w for k, w in weights.items()}})
    save("blocks.trained.safetensors", found[0][0])
    save("blocks.outputs.safetensors", found[0][1])
    return losses_line("blocks", found[0][2])


def write_modules():
    weights, batch, logits, entropy = modules()
    found, totals = [], []
    for dtype in torch.float32, torch.float64:
        w = {name: x.to(dtype).requires_grad_() for name, x in weights.items()}
        data = {name: x.to(dtype) if x.is_floating_point() else x for name, x in batch.items()}
        y = logits(w, **data)
        totals.append([entropy(y, "sum").detach() * 2])
        gradients = torch.autograd.grad(entropy(y, "sum") * 2, list(w.values()))
        for (name, x), g in zip(w.items(), gradients):
            assert g.abs().max() > 0.05 * x.abs().max(), f"{name}: its gradient is lost in it"
        after = {name: x.detach() - g for (name, x), g in zip(w.items(), gradients)}
        outputs = {"logits": y, "best": y.amax(-1), "words": y.argmax(-1).to(dtype), "loss": entropy(y, "none")}
        found.append((after, outputs))
    for single, double in zip(*found):
        all_same(single, double, *totals, "modules")
    save("modules.weights.safetensors", weights)
    save("modules.data.safetensors", batch)
    save("modules.trained.safetensors", found[0][0])
    save("modules.outputs.safetensors", found[0][1])
    return losses_line("modules", totals[0])


def main():
    path = os.path.join(HERE, "losses")
    asked = sys.argv[1:]
    with open(path) as file:
        lines = {line.split()[0]: line for line in file}

    def expected(name):
        return not asked or name in asked
    for number, family in enumerate((pointwise, reductions, losses, views, indices, products, attention, images,
                                      custom, activations, layers, composed, typed, typed_layers)):
        torch.manual_seed(number)
        if expected(family.__name__):
            lines[family.__name__] = write_cases(family)
    torch.manual_seed(100)
    if expected("dropout"):
        lines["dropout"] = write_cases(dropout, 2)
    torch.manual_seed(101)
    if expected("blocks"):
        lines["blocks"] = write_blocks()
    torch.manual_seed(101)
    if expected("modules"):
        lines["modules"] = write_modules()
    with open(path, "w") as file:
        file.writelines(lines.values())


main()
