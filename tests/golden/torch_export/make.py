#!/usr/bin/env python3
"""Writes archives of small modules: families of operators, and models of other kinds than those in this folder.

For each NAME: NAME.pt2 (as exported) or NAME.core.pt2 (after run_decompositions()), without Python's stacks, which are
most of an archive; NAME.batch.safetensors (inputs and target), NAME.input.safetensors, NAME.output.safetensors, and
NAME.tsv: losses and norms of gradients of ten steps of AdamW. Needs torch 2.13 and transformers 5.23:

    python make.py [NAME ...]
"""
import os
import sys

os.environ["HF_HUB_OFFLINE"] = "1"
import torch
import torch.nn as nn
import torch.nn.functional as F
from safetensors.torch import save_file

torch.set_num_threads(1)
here = os.path.dirname(os.path.abspath(__file__))
models = {}


def model(forms=("", ".core"), train=False, trains=True):
    def add(f):
        models[f.__name__] = (f, forms, train, trains)
        return f
    return add


class Family(nn.Module):
    """Many operators of one tensor, which is the input plus a parameter: the gradient reaches it through each."""

    def __init__(self, shape, forward):
        super().__init__()
        self.shift = nn.Parameter(0.1 * torch.randn(shape))
        self.weight = nn.Parameter(0.5 * torch.randn(shape))
        self.register_buffer("order", torch.tensor([2, 0, 3, 1]))
        self.register_buffer("chosen", torch.tensor([True, False, False, True]))
        self.parts = forward

    def forward(self, input):
        results = self.parts(input + self.shift, self.weight, self.order, self.chosen)
        return torch.cat([torch.flatten(r.float()) for r in results]).unsqueeze(0)


@model()
def elementwise():
    def parts(x, w, order, chosen):
        up = x.abs() + 1.1
        yield from (torch.floor(3 * x), torch.ceil(3 * x), torch.round(3 * x), torch.trunc(3 * x), torch.sign(x))
        yield from (up.log2(), up.log10(), torch.exp2(x), torch.tan(0.5 * x), torch.sinh(x), torch.cosh(x))
        yield from (torch.asinh(x), torch.acosh(up), torch.atanh(0.5 * torch.tanh(x)), torch.erf(x), torch.expm1(x))
        yield from (torch.log1p(up), up.reciprocal(), up.rsqrt(), torch.remainder(x, 0.7), torch.fmod(x, 0.7))
        yield from (torch.remainder(x, up), torch.fmod(x, -up), torch.div(x, 0.3, rounding_mode="floor"))
        yield from (torch.div(x, up, rounding_mode="trunc") * w, x.clamp(-0.3, 0.4), x.clamp(min=w), x.clamp_max(0.2))
        yield from (F.elu(x, 0.7), F.celu(x, 0.8), F.selu(x), F.mish(x), F.softplus(x, 2.0), F.hardtanh(x), F.logsigmoid(x))
        yield from (F.hardswish(4 * x), F.hardsigmoid(4 * x), F.leaky_relu(x, 0.2), F.gelu(x), F.gelu(x, approximate="tanh"))
        yield from (F.silu(x), F.relu6(x), F.softsign(x), F.glu(x, 1), torch.pow(up, w), torch.pow(2.0, x), x ** 3)
        yield from (torch.where(x > 0, x, w), torch.where(x > w, 1.5, x), x.masked_fill(w < 0, 2.0), torch.maximum(x, w))
        yield from (torch.minimum(x, w), torch.lerp(x, w, 0.3), torch.addcmul(x, w, x, value=0.5), torch.addcdiv(x, w, up))
        yield from ((x > 0) ^ (w > 0), (x > 0) | (w > 0), ~(x > 0) & (w > 0), torch.isnan(x / x.detach().sign().relu()))
        yield from (torch.logaddexp(x, w), torch.rsub(x, 1, alpha=2), x.add(w, alpha=0.3), torch.nan_to_num(x / 1.0))
        yield torch.arange(24, device=x.device).view(4, 6) // 5 * x
        yield (x * 10).int() % 3 * x
    return Family((4, 6), lambda *a: list(parts(*a))), (torch.randn(4, 6),)


@model()
def reductions():
    def parts(x, w, order, chosen):
        yield from (x.sum(), x.sum(1), x.mean((0, 2), keepdim=True), x.var(1), x.var((0, 1), correction=0), x.std(2))
        yield from (x.amax(1), x.amin((0, 2)), x.max(1)[0], x.min(2, keepdim=True)[0], x.max(), x.argmax(1), x.argmin(2))
        yield from (x.prod(1), x.cumsum(1), x.cumprod(2), x.logsumexp(1), x.norm(dim=1), torch.linalg.vector_norm(w, 1))
        yield from (F.softmax(x, 1), F.log_softmax(x, -1), F.layer_norm(x, (6,), w[0, 0]), F.rms_norm(x, (5, 6), w[0]))
        yield from ((x > 0).any(1), (x > -3).all(2), (x > 0).sum(1), x.sort(1)[0], x.sort(2, descending=True)[1] * 1.0)
        yield from (x.topk(2, 1)[0], x.topk(2, 2, largest=False)[0], torch.cdist(x, w), F.normalize(x, dim=1))
        yield from (torch.var_mean(x, 1)[1], (x > 0).cumsum(1), torch.histc(x.detach(), 4, -2, 2), F.cosine_similarity(x, w))
        yield from (torch.diff(x, dim=1), torch.einsum("bij,bkj->bik", x, w), torch.baddbmm(w[:, :, :5], x, w.mT, beta=0.5))
        yield from (torch.mv(x[0], w[0, 0]), torch.dot(x[0, 0], w[0, 0]), torch.outer(x[0, 0], w[0, 1]))
        yield from (F.mse_loss(x, w), F.l1_loss(x, w, reduction="sum"), F.huber_loss(x, w), F.smooth_l1_loss(x, w))
        yield from (F.cross_entropy(x[0], order[:1].expand(5), ignore_index=1), F.binary_cross_entropy_with_logits(x, w.sigmoid()))
    return Family((4, 5, 6), lambda *a: list(parts(*a))), (torch.randn(4, 5, 6),)


@model()
def shapes():
    def parts(x, w, order, chosen):
        yield from (x.permute(2, 0, 1), x.transpose(0, 2), x.flatten(1), x.unflatten(2, (2, 3)), x.unsqueeze(1).expand(4, 3, 5, 6))
        yield from (x[:, 1:4:2], x[..., -3:], x.select(1, -1), x.narrow(2, 1, 4), torch.cat((x, w), 1), torch.stack((x, w), 2))
        yield from (x.chunk(2, 0)[1], x.split((1, 3, 1), 1)[1], x.unbind(1)[2], x.repeat(1, 2, 1), x.repeat_interleave(3, 1))
        yield from (x.flip(1), x.roll(2, 1), x[0].tril(1), x[1].triu(), F.pad(x, (1, 2, 0, 1), value=0.5), x.movedim(0, 2))
        yield from (F.pad(x, (2, 1), mode="reflect"), F.pad(x[None], (1, 1, 2, 0), mode="replicate"), x[0].diagonal(1))
        yield from (x.diagonal(0, 0, 2), x.squeeze(), x[:, None], x.reshape(20, 6), x.view(-1), x[0].T, x.mT, x.expand_as(x))
        yield from (torch.select_scatter(x, w[:, 0], 1, 2), torch.slice_scatter(x, w[:, 1:3], 1, 2, 4), x.as_strided((6, 20), (1, 6)))
        y = x.clone()
        y[:, 1] = w[:, 0]
        y[1].mul_(2)
        y[:, :, 2:4].add_(1)
        yield y
        yield torch.zeros(3, 4).fill_(0.5) * x[0, 0, 0]
    return Family((4, 5, 6), lambda *a: list(parts(*a))), (torch.randn(4, 5, 6),)


@model()
def indices():
    def parts(x, w, order, chosen):
        rows, some = torch.arange(4), torch.tensor([[1, 0], [3, 2]])
        yield from (x[order], x[:, order], x[order, rows], x[order[:, None], rows], x[:, order, rows], x[order, :, rows], x[some])
        yield from (x[some, :, some], x[-1], x[torch.tensor([-1, 0])], x.index_select(1, order), F.embedding(order, w[0]))
        yield from (F.embedding(some, w[0], padding_idx=0), F.embedding_bag(some, w[0], mode="sum"), F.one_hot(order, 5))
        at = order.view(4, 1, 1).expand(4, 5, 6)
        yield from (x.gather(0, at), x.scatter(0, at[:1], w[:1]), x.scatter(1, at[:, :2], 0.5), x.scatter_add(0, at, w))
        yield from (x.index_add(0, order, w, alpha=0.5), x.index_put((order, rows), w[:, 0]), x.index_put((order,), w[:1]))
        yield from (x.index_put((torch.tensor([1, 1, 0]), torch.tensor([2, 2, 0])), w[:3, 0], accumulate=True), x * chosen.view(4, 1, 1))
        yield from (torch.where(chosen[:, None, None], x, w), x.scatter_reduce(0, at, w, "sum"))
        best = x.detach().sum(2).argmax(1)
        yield from (x[rows, best], w.gather(1, best.view(4, 1, 1).expand(4, 1, 6)), order.sort()[0] * x[0, 0, 0], order.cumsum(0) * w[0, 0, 0])
        yield from (best * w[0, 0, 0], order.max() * x[0, 0], (order + rows).clamp(1, 4).float())
    return Family((4, 5, 6), lambda *a: list(parts(*a))), (torch.randn(4, 5, 6),)


@model()
def composed():
    cells = nn.ModuleList([nn.GRUCell(6, 4), nn.LSTMCell(6, 4), nn.RNNCell(6, 4, nonlinearity="relu"), nn.RNNCell(6, 4)])

    def parts(x, w, order, chosen):
        yield from (torch.multiply(x, w), torch.subtract(x, w, alpha=2), torch.true_divide(x, w.abs() + 1), torch.clip(x, -1, 0.5))
        yield from (x.unfold(1, 2, 2), x.unfold(2, 3, 1), F.unfold(x[None], (2, 3), (1, 2), (1, 0), (2, 1)), torch.tile(x, (2, 1)))
        yield from torch.meshgrid(x[0, 0], w[0, :, 0], indexing="ij")
        a, b = torch.meshgrid(torch.arange(3), torch.arange(4), indexing="xy")
        yield (a + 5 * b) * x[0, 0, 0]
        at = torch.arange(6)
        yield ((at >= 2).long() + (at >= 4).long() == 1) * x  # a sum of two truths as numbers
        yield torch.einsum("abc,dbc,dbe->ae", x, w, x[:, :, :3])
        h = torch.zeros(4, 4)
        yield from (cells[0](x[:, 0], h), *cells[1](x[:, 0], (h, h + 1)), cells[2](x[:, 1]), cells[3](x[:, 2], h))
        yield F.dropout(x * 2, 0.5, False, inplace=True)
        yield from (F.threshold(x, 0.1, -0.3), F.hardshrink(x), F.softshrink(x, 0.3), torch.vdot(x[0, 0], w[0, 0]), torch.eye(4, 5) @ x[0])
        c, d = torch.cat([x, w], 1).chunk(2, 1)
        yield from (c * d, F.adaptive_max_pool2d(x[None], (3, 4)), F.pixel_unshuffle(x[None, :, :4], 2))
        yield F.fold(F.unfold(x[None], (2, 3), (2, 1), (1, 0), (2, 3)), (5, 6), (2, 3), (2, 1), (1, 0), (2, 3))
        v = x[None, None]
        yield from (F.conv3d(v, w[None, None, :2, :3, :2], w[0, 0, :1], (1, 2, 1), (1, 0, 1), (2, 1, 2)), F.max_pool3d(v, (2, 3, 2), (2, 1, 2), (1, 1, 0)))
        yield from (F.avg_pool3d(v, 2, (1, 2, 1), 1, True, False), F.conv3d(v, w[None, None, :4, :1, :2], stride=(4, 1, 2)))
    family = Family((4, 5, 6), lambda *a: list(parts(*a)))
    family.cells = cells
    return family, (torch.randn(4, 5, 6),)


@model(forms=("",))
def everyday():
    def parts(x, w, order, chosen):
        p, q = x.sigmoid(), w.sigmoid().detach()
        side = torch.where(w.detach() > 0, 1.0, -1.0)
        yield from (F.binary_cross_entropy(p, q), F.binary_cross_entropy(p, q, w.abs().detach(), reduction="none"), F.kl_div(x, q, reduction="batchmean"))
        yield from (F.kl_div(x, w, reduction="sum", log_target=True), F.pairwise_distance(x, w), F.poisson_nll_loss(x, q), F.soft_margin_loss(x, side))
        yield from (F.margin_ranking_loss(x, w, side, 0.2), F.hinge_embedding_loss(x, side, 0.8), F.triplet_margin_loss(x, w, p, swap=True))
        yield F.cosine_embedding_loss(x[0], w[0], side[0, :, 0], 0.1, reduction="none")
        yield from (torch.xlogy(x, p), torch.xlogy(torch.zeros_like(x), p.detach() * 0), torch.logit(p), torch.logit(p, 0.3), torch.hypot(x, w))
        yield from (torch.heaviside(x, w).detach(), torch.ldexp(x, order[0]), torch.sinc(x), torch.isin(order, torch.tensor([1, 3])) * x[:, 0, 0])
        yield from (torch.isfinite(x), *torch.std_mean(x, 1), *torch.aminmax(x, dim=2), torch.count_nonzero(x > 0, 1))
        yield from (torch.nansum(x, 1), torch.nanmean(x, 2), torch.trapezoid(x, dx=0.3), torch.trapezoid(x, w[0, 0].abs(), dim=-1))
        yield from (torch.dist(x, w, 3), torch.linalg.norm(x), torch.linalg.norm(x, 1, (1, 2)), torch.linalg.matrix_norm(x, float("inf"), keepdim=True))
        yield from (torch.linalg.norm(x, 3, 1), torch.diag(x[0, 0], 1), torch.diag(x[0], -1), torch.diag_embed(x[0], -2), torch.trace(x[1]))
        yield from (torch.fliplr(x) * w, torch.flipud(x) * w, torch.rot90(x, 1, (1, 2)) * 2, torch.rot90(x, -1, (0, 2)), torch.rot90(x, 2, (0, 1)) * w)
        yield from (F.channel_shuffle(x.transpose(0, 1)[None], 5), torch.take_along_dim(x, order.view(4, 1, 1), 1), torch.take_along_dim(x, order[:1].view(1, 1, 1)))
        yield from (torch.tensordot(x, w, dims=([1, 2], [1, 2])), torch.tensordot(x[0], w, dims=([0], [1])), torch.kron(x[0], w[0, :2, :3]))
        yield from (torch.addbmm(x[0, :, :5], x[:, :, :5], w[:, :5, :5], beta=0.5), torch.addmv(x[0, :, 0], x[0], w[0, 0], alpha=2))
        yield from (torch.addr(x[0], w[0, :, 0], w[1, 0]), torch.linalg.cross(x[..., :3], w[..., :3]), torch.matrix_power(x[:, :5, :5], 5))
        yield from (torch.logspace(-1, 1, 6) * x[0, 0], torch.hann_window(6) * x[0, 0], torch.linspace(0, 1, 5) * x[0, :, 0], torch.frac(3 * x))
        yield from (F.dropout2d(x[None], 0.5, False), F.alpha_dropout(x, 0.5, False), F.avg_pool2d(x[None], 2, divisor_override=3), (x * 10).int() % 3 * w)
    return Family((4, 5, 6), lambda *a: list(parts(*a))), (torch.randn(4, 5, 6),)


@model(forms=("",))
def whole():
    """Whole numbers above 2^24, and what is left of them by a remainder."""
    def parts(x, w, order, chosen):
        big = (order.view(4, 1) + 1) * (torch.arange(9) * 123456789 % 987654321) + 2 ** 24 + order.view(4, 1)
        for y in (big, (big % 1000003 + 2 ** 24).int()):
            made = [y.clamp(2 ** 24 + 1, 2 ** 29 + 1), y.clamp_max(2 ** 24 + 5), y.cumsum(1), y.cumsum(0), (y % 11).cumprod(1), y.median(1)[0]]
            made += [y.median(), y.kthvalue(3, 1)[0], *y.sort(dim=1, stable=True), y.sort(dim=0, descending=True)[0], y.argsort(1), y.topk(3, 1)[0]]
            made += [*y.max(1), y.min(0)[0], y.argmax(1), y.argmin(), *y.cummax(1), y.cummin(1)[0], y.sum(1), F.pad(y, (1, 1), value=2 ** 24 + 1)]
            made += [y.scatter(0, order.view(4, 1), y[:, :1] + 1), y.scatter_add(0, order.view(4, 1).expand(4, 9), y), y.index_add(0, order[:2], y[:2])]
            made += [y.index_put((order[:2],), y[2:] + 1), y.index_put((order[:1].expand(2),), y[2:], accumulate=True), (y > 2 ** 25).cumsum(1)]
            for z in made:
                yield (z % 1009) * 0.01 + w[0, 0]
    return Family((4, 5), lambda *a: list(parts(*a))), (torch.randn(4, 5),)


@model(forms=("", ".core"))
def drawn():
    """Random numbers: what is true of their distributions, whatever they are."""
    def parts(x, w, order, chosen):
        def near(y, mean, std):
            return ((y.float().mean() - mean).abs() < 0.1) * ((y.float().std() - std).abs() < 0.1) * w
        ones = torch.ones(40, 50)
        yield near(torch.rand(40, 50), 0.5, 12 ** -0.5)
        yield near(torch.rand_like(ones), 0.5, 12 ** -0.5)
        yield near(torch.randn(40, 50), 0, 1)
        yield near(torch.randn_like(ones), 0, 1)
        yield near(torch.randint(2, 5, (40, 50)), 3, (2 / 3) ** 0.5)
        yield near(torch.randint_like(ones, 3), 1, (2 / 3) ** 0.5)
        yield near(torch.bernoulli(ones * 0.3), 0.3, 0.21 ** 0.5)
        yield near(torch.empty_like(ones).bernoulli_(0.8), 0.8, 0.16 ** 0.5)
        yield near(torch.empty_like(ones).uniform_(1, 2), 1.5, 12 ** -0.5)
        yield near(torch.empty_like(ones).normal_(0.5, 0.4), 0.5, 0.4)
        yield near(torch.empty_like(ones).exponential_(2.0), 0.5, 0.5)
        yield near(torch.empty_like(ones).log_normal_(0.0, 0.5).log(), 0, 0.5)
        yield near(torch.normal(ones, 0.5 * ones), 1, 0.5)
        yield torch.randperm(40).sort()[0] * w[0, 0]
        yield torch.multinomial(torch.tensor([[1.0, 0.0, 2.0]]).expand(40, 3), 2).sum(1) * w[0, 0]
        yield (torch.rand(40) != torch.rand(40)).all() * w
    return Family((4, 5), lambda *a: list(parts(*a))), (torch.randn(4, 5),)


@model(forms=("",))
def ordered():
    """By the order of numbers, and by indices: medians, searches, extremes up to each element, reductions, ragged bags."""
    def parts(x, w, order, chosen):
        at = torch.tensor([0, 0, 2, 1]).view(4, 1, 1).expand(4, 5, 6)
        for reduce in ("sum", "prod", "mean", "amax", "amin"):
            yield from (torch.scatter_reduce(w * x.tanh(), 0, at, x, reduce), torch.scatter_reduce(x, 0, at, w, reduce, include_self=False))
        yield from (torch.scatter_reduce(torch.zeros(4, 5, 6), 0, at, (3 * x).round() + x - x.detach(), "amax"), torch.index_reduce(w, 0, order, x, "mean"))
        yield from (*torch.cummax(x, 1), *torch.cummin(x, 2), torch.logcumsumexp(x, 1), torch.cumulative_trapezoid(x, dim=1))
        yield from (torch.cumulative_trapezoid(x, w[0, 0].abs(), dim=2), *torch.kthvalue(x, 3, 2, True), torch.median(x), *torch.median(x, 1), torch.msort(x))
        q = torch.tensor([0.1, 0.5, 0.9])
        yield from (torch.quantile(x, 0.3, 1), torch.quantile(x, q, 2, keepdim=True), torch.quantile(x, q), torch.quantile(x, 0.3, 1, interpolation="midpoint"))
        bounds = torch.tensor([-1.0, -0.3, 0.2, 0.9])
        yield from (torch.bucketize(x, bounds) * w, torch.searchsorted(bounds, x, right=True) * w, torch.searchsorted(w[0].sort(1)[0], x[0]) * w[0])
        yield from (torch.take(x, order * 7), x[0][tuple(torch.tril_indices(5, 6, -1))], x[0][tuple(torch.triu_indices(5, 6, 1))])
        bag, starts, table = torch.tensor([0, 3, 1, 1, 2, 0, 3, 2, 2]), torch.tensor([0, 2, 2, 6]), x[0, :, :5]
        for mode in ("sum", "mean", "max"):
            yield from (F.embedding_bag(bag, table, starts, mode=mode), F.embedding_bag(bag, table, starts, mode=mode, padding_idx=1))
        yield from (F.embedding_bag(bag, table, starts, mode="sum", per_sample_weights=w.flatten()[:9]), F.embedding_bag(bag, table, starts, include_last_offset=True))
        y, i = F.max_pool2d(x[None, :, :4], 2, return_indices=True)
        yield from (F.max_unpool2d(y, i, 2), F.max_pool1d(x, 3, 2, 1, return_indices=True)[1] * w[:, :, :3])
        whole = (10 * x.detach()).int()
        yield from ((whole & 6) * w, (whole | 5) * w, (whole ^ (9 * w.detach()).int()) * w, (whole << 2) * w, (whole >> 1) * w, whole ** 2 * w)
        shifts, powers = (0, 15, 19, 21, 25, 30), (1, 10, 15, 17, 18, 19)
        by, of = torch.tensor(shifts, dtype=torch.int32), torch.tensor(powers, dtype=torch.int32)
        one = whole * 0 + 1

        def are(y, numbers): # by their last digits
            return (y % 1000 == torch.tensor([n % 1000 for n in numbers])) * w
        yield from (are(one << by, [1 << k for k in shifts]), are((one << 30) >> by, [1 << 30 - k for k in shifts]))
        yield from (are((3 * one) ** of, [3 ** k for k in powers]), are((one * 7) ** 11, 6 * [7 ** 11]))
        yield from ((((one - 2) ** -of) == torch.where(of % 2 == 0, 1, -1)) * w, ((3 * one) ** -of == 0) * w)
        y = torch.zeros(4, 5, 6)
        y[4:] = 1.0
        y[:, 2:2], y[0:-4, 1:3] = 3.0, 2.0
        yield from (y * x, x.masked_scatter(w > 0.3, w * 2), F.bilinear(x, w, w[:3].repeat(1, 2, 1)[:, :6]))
    return Family((4, 5, 6), lambda *a: list(parts(*a))), (torch.randn(4, 5, 6),)


@model(forms=("",))
def special():
    """Special functions, distributions, stacks and products of few models, windows and short-time Fourier transforms."""
    def parts(x, w, order, chosen):
        up = x.abs() + 0.2
        yield from (torch.lgamma(up), torch.digamma(up), torch.lgamma(2 * x).clamp(-2, 2), torch.erfinv(0.9 * torch.tanh(x)), torch.mvlgamma(up + 2, 3))
        yield from (torch.copysign(x, w), torch.deg2rad(x), torch.rad2deg(x), torch.fmax(x, w), torch.fmin(x, w), torch.isclose(x, w, atol=0.5) * w)
        yield from (torch.logaddexp2(x, w), torch.special.entr(up), torch.special.ndtr(x), torch.special.ndtri(torch.sigmoid(x)), torch.special.xlog1py(x, up))
        yield from (F.rrelu(x), torch.hstack([x, w]), torch.vstack([x[0], w[0]]), torch.dstack([x[0], w[0]]), torch.column_stack([x[0, :, 0], w[0]]))
        yield from (x.sum_to_size(5, 1), torch.diagflat(x[0, :2], 1), torch.block_diag(x[0], w[0, :2], x[1, :, :3]), torch.cartesian_prod(x[0, 0], w[0, 0, :3]))
        yield from (torch.inner(x, w[0]), torch.linalg.multi_dot([x[0], w[0].T, x[1]]), torch.linalg.vecdot(x, w), torch.renorm(x, 2, 1, 1.5))
        yield from (F.affine_grid(x[:2, :2, :3], (2, 3, 4, 5), align_corners=False), F.adaptive_max_pool1d(x, 3), torch.gradient(x, dim=1)[0])
        yield from (F.pad(x, (1, 2), mode="circular"), torch.hamming_window(6) * x[0], torch.blackman_window(6) * x[0], torch.fft.rfftfreq(11, d=0.5) * x[0])
        yield torch.stft(x.reshape(4, 30), 8, 3, window=torch.hann_window(8), return_complex=True).abs() + 0
        z = torch.complex(x, w)
        yield from (torch.istft(z.reshape(1, 5, 24), 8, 2, window=torch.hann_window(8) + 0.1), torch.einsum("bij,bkj,bkl->bil", z, z.conj(), z.exp()).imag)
        yield from (F.multi_margin_loss(x[0, :4], order), F.multilabel_margin_loss(x[0, :2], torch.tensor([[2, 0, -1, 1, 1, 1], [5, -1, 0, 0, 0, 0]])))
        v = x.reshape(1, 2, 2, 5, 6)
        yield F.conv_transpose3d(v, w.flatten()[:72].reshape(2, 3, 2, 3, 2), w[0, 0, :3], (2, 1, 3), (1, 0, 1), (1, 0, 2), 1, (1, 2, 1))
        d = torch.distributions
        yield from (d.Beta(up, w.abs() + 0.2, False).log_prob(w.sigmoid()), d.Gamma(up, up, False).log_prob(w.sigmoid()), d.Dirichlet(up, False).log_prob(w.softmax(-1)))
        yield from (d.StudentT(up + 2, x, up, False).log_prob(w), d.Poisson(up, False).log_prob(w.abs().round()))
    return Family((4, 5, 6), lambda *a: list(parts(*a))), (torch.randn(4, 5, 6),)


@model(forms=("",))
def matrices():
    """Linear algebra of small matrices."""
    def parts(x, w, order, chosen):
        linalg, one = torch.linalg, torch.eye(5)
        a, b = x[..., :5] + 0.5 * one, w[..., :5] + one
        good = a @ a.mT + one
        yield from (linalg.inv(a), torch.inverse(b[0]), *linalg.slogdet(a), linalg.det(a), torch.logdet(good), linalg.solve(a, w), linalg.solve(b, x[..., 0]))
        yield from (linalg.cholesky(good), linalg.cholesky(good, upper=True), linalg.solve_triangular(good.triu(), w, upper=True))
        yield from (linalg.solve_triangular(0.3 * a, w, upper=False, unitriangular=True), torch.cholesky_solve(w, linalg.cholesky(good)))
        yield from (linalg.matrix_exp(a), linalg.matrix_exp(3 * (a - a.mT)))
        yield torch.distributions.MultivariateNormal(w[:, :, 0], covariance_matrix=good, validate_args=False).log_prob(x[..., 1])
    return Family((4, 5, 6), lambda *a: list(parts(*a))), (torch.randn(4, 5, 6),)


@model()
def decompositions():
    """QR, eigenvalues and singular values. Signs of eigenvectors and singular vectors are any: what does not depend on them."""
    def parts(x, w, order, chosen):
        linalg, one = torch.linalg, torch.eye(5)
        a, tall, wide = x[..., :5] + 4 * one, (w + torch.eye(5, 6)).mT, w + torch.eye(5, 6)
        yield from (*linalg.qr(tall), *linalg.qr(a), *linalg.qr(wide, mode="complete"))
        values, vectors = linalg.eigh(a + a.mT)
        yield from (values, vectors @ torch.diag_embed(torch.tanh(values)) @ vectors.mT, vectors ** 2, linalg.eigvalsh(a @ a.mT + one))
        yield linalg.eigh(a, UPLO="U")[0]
        for m in (tall, wide, a):
            u, s, v = linalg.svd(m, full_matrices=False)
            yield from (s, u @ v, u ** 2, v ** 2, u @ torch.diag_embed(s / (1 + s)) @ v)
        u, s, v = linalg.svd(tall)
        yield from (u[..., :5] @ v, linalg.svdvals(wide), torch.linalg.pinv(tall), linalg.pinv(a @ a.mT + one, hermitian=True))
        yield from (linalg.matrix_rank(a), linalg.matrix_rank(a[:, :, :2] @ a[:, :2]))
        yield from (linalg.matrix_norm(a, "nuc"), linalg.matrix_norm(tall, 2), linalg.matrix_norm(a, -2, keepdim=True), linalg.cond(a))
    return Family((4, 5, 6), lambda *a: list(parts(*a))), (torch.randn(4, 5, 6),)


@model(forms=("", ".core"))
def decomposed():
    """Refused as exported, and right in core ATen: tpgen says so."""
    def parts(x, w, order, chosen):
        yield from (F.pad(x, (1, 0), value=0.5), torch.nanquantile(x, 0.3, 1), torch.fft.hfft(torch.complex(x, w)), torch.fft.hfft2(torch.complex(x, w)))
        yield from (torch.fft.ihfft(x).real, torch.fft.ihfft2(x).imag, torch.fft.ihfftn(x).real, torch.fft.hfftn(torch.complex(x, w)))
        yield nn.utils.rnn.pad_sequence([x[0], x[1, :3]])
    return Family((4, 5, 6), lambda *a: list(parts(*a))), (torch.randn(4, 5, 6),)


@model(forms=("",), trains=False)
def random():
    return Family((4, 5, 6), lambda x, *_: [x + torch.randn_like(x), x * torch.rand(6)]), (torch.randn(4, 5, 6),)


@model(forms=("",), trains=False)
def kept():
    return Family((4, 5, 6), lambda x, *_: [torch.linalg.householder_product(x.mT, x[:, 0, :5])]), (torch.randn(4, 5, 6),)


@model()
def signals():
    """Fourier transforms and other complex numbers, images at other places, angles, doubles."""
    def parts(x, w, order, chosen):
        z, y = torch.fft.fft(x), torch.complex(x, w)
        yield from (torch.fft.fftn(x, dim=(1, 2)).real, torch.fft.rfft(x, dim=1).imag, torch.fft.irfft(y[:, :, :4], n=7, norm="ortho"))
        yield from (torch.fft.ifft2(y, norm="forward").abs(), torch.fft.irfftn(torch.fft.rfftn(x) * w.abs().mean()), y.angle())
        yield from (torch.fft.fftshift(torch.fft.fft(x, n=8, norm="ortho"), dim=2).real, z.imag)
        turns = torch.polar(torch.ones(5, 3), torch.arange(15).view(5, 3) * 0.1)
        pairs = torch.view_as_complex(x.reshape(4, 5, 3, 2))
        yield from (torch.view_as_real(pairs * turns).flatten(2), (y * z.conj() / (y + 2)).real, (y @ z.mT).abs(), y.exp().imag)
        yield from (torch.asin(0.9 * torch.tanh(x)), torch.acos(0.9 * torch.tanh(x)), torch.atan(5 * x), torch.atan2(x, w))
        yield from (torch.atan2(torch.zeros(2), torch.tensor([-1.0, 0.0])) * x[0, 0, 0], torch.masked_scatter(x, w > 0, w * 2))
        v = x[None]
        yield from (F.interpolate(v, (7, 4), mode="bicubic"), F.interpolate(v, scale_factor=1.5, mode="bicubic", align_corners=True))
        yield from (F.interpolate(v, scale_factor=1.7, mode="bilinear"), F.interpolate(v, (3, 11), mode="nearest-exact"))
        yield from (F.interpolate(v[None], (3, 7, 4), mode="trilinear"), F.interpolate(v[None], (3, 7, 4)), F.adaptive_avg_pool3d(v[None], (3, 2, 4)))
        yield from (F.interpolate(v, (3, 4), mode="bicubic", antialias=True), F.interpolate(v, (2, 9), mode="bilinear", antialias=True))
        places = 1.3 * torch.tanh(w[:2, :3].reshape(1, 6, 3, 2))
        for padding in ("zeros", "border", "reflection"):
            yield F.grid_sample(v, places, padding_mode=padding, align_corners=padding != "border")
        yield F.grid_sample(v, places, mode="nearest", align_corners=False)
        yield torch.einsum("aBc,dBc->ad", x, w)
        yield from (torch.view_as_real(pairs[:, 0] * family.turns), x[:, 0, 0].double() * family.precise)
    family = Family((4, 5, 6), lambda *a: list(parts(*a)))
    family.register_buffer("turns", torch.polar(torch.rand(3, 4), torch.randn(3, 4)).T)
    family.precise = nn.Parameter(torch.randn(4, dtype=torch.float64))
    return family, (torch.randn(4, 5, 6),)


class Own(nn.Linear):
    """A class of the model's own, which multiplies in its own way."""

    def forward(self, input):
        return input @ self.weight.T + self.bias


class Projections(nn.Module):
    """Blocks whose projections make several things at once."""

    def __init__(self):
        super().__init__()

        class Block(nn.Module):
            def __init__(self):
                super().__init__()
                self.attn = nn.MultiheadAttention(24, 4, batch_first=True)
                self.qkv, self.out_proj, self.norm = nn.Linear(24, 72), nn.Linear(24, 24), nn.LayerNorm(24)
                self.query_key_value, self.o_proj = nn.Linear(24, 48), nn.Linear(24, 24)
                self.gate_up_proj, self.down_proj = nn.Linear(24, 80, bias=False), Own(40, 24)

            def forward(self, x):
                x = x + self.attn(x, x, x, need_weights=False)[0]
                q, k, v = self.qkv(self.norm(x)).reshape(2, 6, 3, 4, 6).permute(2, 0, 3, 1, 4).unbind(0)
                x = x + self.out_proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(2, 6, 24))
                heads = self.query_key_value(x).view(2, 6, -1, 6)
                q, k, v = (t.transpose(1, 2) for t in (heads[..., :-4, :], heads[:, :, 4:6], heads[:, :, -2:]))
                y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
                x = x + self.o_proj(y.transpose(1, 2).flatten(2))
                gate, up = self.gate_up_proj(x).chunk(2, -1)
                return x + self.down_proj(F.silu(gate) * up)
        self.blocks = nn.ModuleList([Block(), Block()])

    def forward(self, input):
        for block in self.blocks:
            input = block(input)
        return input


@model()
def projections():
    return Projections(), (torch.randn(2, 6, 24),)


class Crossed(nn.Module):
    """Decoders whose attention to another sequence has its three projections in one weight."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.TransformerDecoderLayer(24, 4, 40, batch_first=True) for _ in range(2)])

    def forward(self, input, second):
        for layer in self.layers:
            input = layer(input, second)
        return input


@model()
def crossed():
    return Crossed(), (torch.randn(2, 6, 24), torch.randn(2, 5, 24))


class Bags(nn.Module):
    """Bags whose offsets, the last one behind the last bag, are an input: data parallel cuts it."""

    def __init__(self):
        super().__init__()
        self.table, self.weights = nn.Parameter(torch.randn(20, 6)), nn.Parameter(torch.rand(14))
        self.out = nn.Linear(18, 5)

    def forward(self, input, second):
        def bag(mode, weights=None):
            return F.embedding_bag(input, self.table, second, mode=mode, per_sample_weights=weights, include_last_offset=True)
        return self.out(torch.cat([bag("sum", self.weights), bag("mean"), bag("max")], 1))


@model(forms=("",))
def bags():
    return Bags(), (torch.randint(0, 20, (14,)), torch.tensor([0, 3, 3, 9, 14]))


class BagsBehind(nn.Module):
    """Rows behind the last offset, whose gradients PyTorch leaves undefined."""

    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.randn(4, 6))

    def forward(self, input, second):
        return torch.cat([F.embedding_bag(input, self.table, second, mode=mode, include_last_offset=True, padding_idx=padding)
                          for mode in ("sum", "mean", "max") for padding in (None, 2)])


@model(forms=("",), trains=False)
def bags_behind():
    return BagsBehind(), (torch.tensor([0, 3, 1, 1, 2, 0, 3, 2, 2]), torch.tensor([0, 2, 2, 6]))


@model(forms=("",))
def numbers():
    def parts(x, w, order, chosen):
        mask = (x > 0).masked_fill(x > 1, False).masked_fill(w > 0.5, True)
        yield from (torch.where(mask, x, w), x.masked_fill(mask, 0.5), x.masked_fill(mask, w[0, 0].detach()))
        yield from (torch.linalg.vector_norm(x, dim=1, dtype=torch.float32), torch.linalg.vector_norm(0.0 * w, dim=1))
        held = w[1, 2].item()
        yield from (x.new_full((4, 1), held), x * held, torch.full((3,), held), torch.full_like(x, held) * x)
        yield from ((~torch.zeros(4, 6).to(torch.bool)).cumsum(1, dtype=torch.float32) * x, torch.ones(4, 6, dtype=torch.int32).cumsum(0) * x)
        yield from (F.embedding(order % 3, w, scale_grad_by_freq=True) * x, F.embedding(order // 2, w, 1, scale_grad_by_freq=True))
        # Of three rows and one column, over images of two rows: GCC 12 made wrong code of a test of rows there.
        yield 0.1 * F.conv2d(x.repeat(4, 4).view(2, 6, 2, 16), w.repeat(5, 1).flatten()[:108].view(6, 6, 3, 1), padding=(1, 0))
        yield from (x.sort(0)[0], x.argsort(0) * 1.0, x.topk(2, 0)[0], (4 * x).int().sort(0)[0] * 1.0)
    return Family((4, 6), lambda *a: list(parts(*a))), (torch.randn(4, 6),)


class Named(nn.Module):
    """Inputs with the names of a parameter, a buffer and the target: those in the data have `_input` behind them."""

    def __init__(self):
        super().__init__()
        self.input = nn.Parameter(torch.randn(6))
        self.register_buffer("scale", torch.rand(6))
        self.out = nn.Linear(6, 5)

    def forward(self, input, scale, target):
        return self.out((input * self.input + scale * self.scale).tanh() - target)


@model(forms=("",))
def named():
    return Named(), (torch.randn(4, 6), torch.randn(4, 6), torch.randn(4, 6))


@model(forms=("",))
def unplaced():
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 8, batch_first=True), 2, enable_nested_tensor=False), (torch.randn(2, 3, 8),)


class Images(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, 2, 1)
        self.depth = nn.Conv2d(8, 8, 3, padding=1, groups=8, dilation=1)
        self.norm, self.group = nn.BatchNorm2d(8), nn.GroupNorm(2, 8)
        self.up = nn.ConvTranspose2d(8, 6, 3, 2, 1, 1)
        self.line = nn.Conv1d(6, 4, 3, stride=2, padding=1)
        self.back = nn.ConvTranspose1d(4, 4, 4, 2, 1)

    def forward(self, input):
        x = F.max_pool2d(F.relu(self.norm(self.first(input))), 3, 2, 1)
        x = self.group(self.depth(x) + F.avg_pool2d(x, 3, 1, 1))
        y = F.interpolate(x, scale_factor=2, mode="nearest") + F.interpolate(x, size=(8, 8), mode="bilinear")
        z = self.back(self.line(self.up(y).flatten(2)))
        p = F.pixel_shuffle(x, 2)
        return torch.cat([F.adaptive_avg_pool2d(y, 2).flatten(1), F.max_pool1d(z, 4).flatten(1), p.flatten(1),
                          F.avg_pool1d(z, 8).flatten(1), F.adaptive_avg_pool1d(z, 4).flatten(1)], 1)


@model()
def images():
    return Images(), (torch.randn(2, 3, 16, 16),)


@model(train=True)
def images_train():
    return Images(), (torch.randn(4, 3, 16, 16),)


class Twice(nn.Module):
    """One batch norm that runs twice."""

    def __init__(self):
        super().__init__()
        self.norm, self.line = nn.BatchNorm1d(6, momentum=0.3), nn.Linear(6, 6, bias=False)

    def forward(self, input):
        return self.norm(self.line(self.norm(input)) * 2 + 1)


@model(forms=("",), train=True)
def norm_twice():
    return Twice(), (torch.randn(8, 6),)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.gru = nn.LSTM(6, 5, 2, batch_first=True, bidirectional=True), nn.GRU(10, 6)
        self.rnn = nn.RNN(6, 4, nonlinearity="relu", bias=False)

    def forward(self, input):
        x, (h, c) = self.lstm(input)
        x, _ = self.gru(x)
        return torch.cat([self.rnn(x)[0].flatten(1), h[0] + c[1]], 1)


@model()
def recurrent():
    return Recurrent(), (torch.randn(3, 4, 6),)


class Storages(nn.Module):
    """Weights that lie in their storage in other orders; several in one; constants; buffers that change."""

    def __init__(self):
        super().__init__()
        self.turned = nn.Parameter(torch.randn(6, 8).t())
        both = torch.randn(4, 8)
        self.one, self.two = nn.Parameter(both[:2]), nn.Parameter(both[2:])
        self.last = nn.Parameter(torch.randn(4, 3, 3, 2).to(memory_format=torch.channels_last))
        self.third = nn.Parameter(torch.randn(6, 5, 4).permute(2, 0, 1))
        self.register_buffer("table", torch.tensor([[5, 1, 4], [0, 3, 2]]))
        self.register_buffer("mask", torch.ones(6, 6, dtype=torch.bool).tril())
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))
        self.frozen = nn.Parameter(torch.randn(5), requires_grad=False)

    def forward(self, input):
        x = input @ self.turned
        self.steps.add_(1)
        y = x[:, self.table].flatten(1) + torch.tensor([0.5, 2.0, -1.0, 4.0, 3.0, 0.25])
        y = torch.where(self.mask, y[:, None, :], 0.0).sum(2)
        z = torch.einsum("ni,aij->naj", y, self.third).flatten(1)
        rest = (self.one.sum() + (self.two * torch.tensor(3)).prod()) * self.frozen
        return torch.cat([z, (rest + self.last.mean((0, 1, 2)).sum()).expand(3, 5), y], 1)


@model()
def storages():
    return Storages(), (torch.randn(3, 8),)


class Attention(nn.Module):
    """Attention written out: additive causal mask, a mask that is filled, one that is an input, none at all."""

    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)
        self.register_buffer("bias", torch.full((6, 6), float("-inf")).triu(1))
        self.layers = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), 2, enable_nested_tensor=False)

    def forward(self, input, second):
        q, k, v = (t.view(2, 6, 4, 4).transpose(1, 2) for t in self.qkv(input).split(16, 2))
        causal = torch.ones(6, 6, dtype=torch.bool).tril()
        x = (q @ k.transpose(-2, -1) / 2).masked_fill(~causal, float("-inf")).softmax(-1) @ v
        near = causal & ~causal.tril(-3)
        x = x + (torch.where(near, q @ k.mT, torch.finfo(torch.float32).min).softmax(-1) @ v)
        x = x + (q @ k.mT * 0.5 + self.bias).softmax(-1) @ v
        x = x + torch.bmm((torch.bmm(q.flatten(0, 1), k.flatten(0, 1).mT)).softmax(-1), v.flatten(0, 1)).view(2, 4, 6, 4)
        x = x + F.scaled_dot_product_attention(q, k[:, :2].repeat_interleave(2, 1), v, attn_mask=second[:, None, None, :] > -1)
        x = self.out(x.transpose(1, 2).flatten(2))
        x = x + (x @ x.mT).softmax(-1) @ x
        return self.layers(x, mask=nn.Transformer.generate_square_subsequent_mask(6), is_causal=True)


@model()
def attention():
    return Attention(), (torch.randn(2, 6, 16), torch.randn(2, 6))


class Changed(nn.Module):
    """A model that changes its own weight, which is refused."""

    def __init__(self):
        super().__init__()
        self.a = nn.Linear(3, 2)

    def forward(self, input):
        with torch.no_grad():
            self.a.weight.div_(2)
        return self.a(input)


@model(forms=("",))
def changed():
    return Changed(), (torch.randn(4, 3),)


VIEWS = [
    lambda y: y.T, lambda y: y.mT, lambda y: y.swapaxes(0, 1), lambda y: y.swapdims(0, -1), lambda y: y.movedim(0, 1),
    lambda y: y.moveaxis(1, 0), lambda y: y.narrow(1, 1, 2), lambda y: y.view_as(y + 1), lambda y: y.reshape_as(y + 1),
    lambda y: y.diagonal(1), lambda y: y.diagonal(-2), lambda y: y.unfold(1, 2, 3), lambda y: y.expand(1, 4, 6),
    lambda y: y.expand_as(y + 1), lambda y: y.broadcast_to(4, 6), lambda y: y[:, 1::2], lambda y: y[1::2, ::3],
    lambda y: y.flatten(), lambda y: y.unflatten(1, (2, 3)), lambda y: y[:, :1].squeeze(1), lambda y: y.unsqueeze(1),
    lambda y: y.detach(), lambda y: y.float(), lambda y: y.contiguous(), lambda y: torch.positive(y), lambda y: torch.real(y),
    lambda y: y.ravel(), lambda y: y.T.ravel(), lambda y: y.type_as(y + 1), lambda y: F.dropout(y, 0.5, False),
    lambda y: y.T.reshape(24), lambda y: y.T.reshape(3, 2, 4), lambda y: y.T.contiguous(), lambda y: y[:, 1:3].contiguous(),
    lambda y: y.as_strided((6, 4), (1, 6)), lambda y: y.as_strided((2, 3), (6, 2), 1), lambda y: torch.adjoint(y),
    lambda y: torch.view_as_complex(y.view(4, 3, 2)).real, lambda y: torch.view_as_complex(y.view(4, 3, 2)).conj().imag,
    lambda y: torch.view_as_real(torch.view_as_complex(y.view(4, 3, 2))), lambda y: torch.atleast_3d(y),
    lambda y: y.view(2, 2, 6).transpose(0, 2)[1:4].movedim(0, 2).diagonal(), lambda y: y.to(torch.float32, copy=True),
    lambda y: y.double().float(),
]


class Views(nn.Module):
    """Each kind of view, or copy: it is changed in place, then what it is a view of; both are read."""

    def __init__(self):
        super().__init__()
        self.a = nn.Linear(6, 6)
        self.register_buffer("table", torch.randn(4, 6))

    def forward(self, input):
        x = self.a(input)
        out = x
        for view in VIEWS:
            y = x.clone()
            v = view(y)
            v.mul_(1.5)
            y.sub_(0.25)
            out = out * 0.9 + y + v.mean()
        return out


@model(forms=("",))
def views():
    return Views(), (torch.randn(4, 6),)


class Places(Views):
    """Changes in place of all kinds, in turn, beside each other, and of which autograd sees nothing."""

    def forward(self, input):
        x, out = self.a(input), []

        def new():
            out.append(x.clone())
            return out[-1]
        y = new()
        y[..., 0::2] = x[..., :3].sin()
        y[..., 1::2] = x[..., 3:].cos()
        y[4:] = 1.0
        y = new()
        y.unfold(1, 3, 1).fill_(0.5)
        y = new()
        for i in range(3):
            y.T[i].mul_(i + 1)
            y[i].add_(y.diagonal()[i].clone())
        with torch.no_grad():
            new().mul_(2)
            new().T[1:3].mul_(2)
        new().detach()[1].mul_(3)
        y = new()
        y.t_()
        y[0].zero_()
        z = torch.view_as_complex(new().view(4, 3, 2))
        z.conj()[0].add_(torch.complex(self.table[0, :3], self.table[1, 3:]))
        z.conj().conj().resolve_conj().mul_(2)
        z.mH[1].mul_(torch.complex(self.table[1, :4], self.table[2, :4]))
        z[:, 0] = 1.0
        y = new()
        y.T.index_fill_(0, torch.tensor([1, 3]), 2.0)
        y.fill_diagonal_(0.5)
        y.T.masked_fill_(self.table.T > 0.5, -1.0)
        y = new()
        q, k, v = (y.view(1, 4, 6) * i for i in (1, 2, 3))
        p = (q @ k.mT).softmax(-1)
        v.mul_(2)
        out.append((p @ v).view(4, 6))
        c, t = self.table.clone(), self.table.clone().view(2, 2, 6)
        first, second = c.chunk(2, 1)
        first.add_(second)
        torch.tensor_split(c, 4, 1)[1].mul_(3)
        t.unbind(1)[1].zero_()
        torch.dsplit(t, 2)[1].add_(1)
        torch.diagonal(t, 0, 0, 2).copy_(c[:2, :2])
        m = c > 0
        m.T[0].fill_(True)
        n = torch.arange(24).view(4, 6)
        n.T[1].add_(5)
        n.diagonal().zero_()
        out.append(x * c * m * n + t.view(4, 6))
        return torch.cat([y.flatten() for y in out]).unsqueeze(0)


@model(forms=("",))
def places():
    return Places(), (torch.randn(4, 6),)


class Renormed(nn.Module):
    """Buffers, an input and rows of an embedding change; tpgen has them as in the file in each step."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(7, 6, max_norm=1.0)
        self.register_buffer("table", torch.randn(4, 6))
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))

    def forward(self, input):
        x = self.words(torch.tensor([[0, 1], [3, 1]])).view(4, 6)
        with torch.no_grad():
            self.table.T[1].mul_(0.9).add_(x.sum(1))
        self.table[:-1] = self.table[1:].clone()
        self.steps.add_(3)
        input.diagonal().add_(1)
        return x * self.table * self.steps + input


@model(forms=("",), trains=False)
def own_changes():
    return Renormed(), (torch.randn(4, 6),)


class Unknown(nn.Module):
    """A change in place of what may be a view or not, and of a view whose elements are one; both are refused."""

    def __init__(self, change):
        super().__init__()
        self.a, self.change = nn.Linear(3, 2), change

    def forward(self, input):
        y = self.a(input).clone()
        self.change(y)
        return y


@model(forms=("",), trains=False)
def changed_einsum():
    return Unknown(lambda y: torch.einsum("ij->ji", y).mul_(2)), (torch.randn(4, 3),)


@model(forms=("",), trains=False)
def changed_windows():
    return Unknown(lambda y: y.unfold(0, 2, 1).mul_(2)), (torch.randn(4, 3),)


@model(forms=("",), trains=False)
def changed_each():
    return Unknown(lambda y: torch._foreach_add_([y], 1.0)), (torch.randn(4, 3),)


class Lossy(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(8, 5)

    def forward(self, input, second):
        y = self.a(input)
        return F.cross_entropy(y, second, label_smoothing=0.1), y


@model(forms=("",))
def lossy():
    return Lossy(), (torch.randn(6, 8), torch.randint(0, 5, (6,)))


def transformers_model(kind, config, **settings):
    import transformers
    config = getattr(transformers, config)(vocab_size=40, hidden_size=16, intermediate_size=24, num_hidden_layers=2,
                                           num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=32, **settings)
    config.use_cache = False
    config._attn_implementation = "sdpa"

    class Wrapper(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = getattr(transformers, kind)(config)

        def forward(self, input):
            return self.model(input_ids=input).logits
    return Wrapper(), (torch.randint(0, 40, (2, 8)),), 40


@model(forms=("",))
def mixtral():
    return transformers_model("MixtralForCausalLM", "MixtralConfig", num_local_experts=4, num_experts_per_tok=2)


@model(forms=(".core",))
def gemma():
    return transformers_model("Gemma3ForCausalLM", "Gemma3TextConfig", head_dim=4, sliding_window=3)


def without_stacks(program):
    def strip(graph):
        for node in graph.nodes:
            for key in ("stack_trace", "from_node", "source_fn_stack", "custom"):
                node.meta.pop(key, None)
    strip(program.graph)
    for module in program.graph_module.children():
        if isinstance(module, torch.fx.GraphModule):
            strip(module.graph)
    return program


UNPLACED = (4, 20, 40)


def without_module(program, places):
    """Such a node as passes over a graph make: it has no text that says of which module it is."""
    for i, node in enumerate(n for n in program.graph.nodes if n.op == "call_function"):
        if i in places:
            node.meta.pop("nn_module_stack")
    return program


def steps_of(m, x, target, classes):
    optimizer = torch.optim.AdamW(m.parameters(), lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    for _ in range(10):
        optimizer.zero_grad()
        y = m(*x)
        if isinstance(y, tuple):
            loss = y[0]
        else:
            loss = F.cross_entropy(y.flatten(0, -2), target.flatten()) if classes else F.mse_loss(y, target)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(m.parameters(), 1.0)
        optimizer.step()
        yield loss.item(), norm.item(), optimizer


def write(name):
    make, forms, train, trains = models[name]
    torch.manual_seed(20)
    m, x, *classes = make()
    m.train(train)
    with torch.no_grad():
        for p in m.parameters():
            if p.dim() <= 1 and p.requires_grad:
                p.add_(0.1 * torch.randn_like(p))
    path = os.path.join(here, name)
    for form in forms:
        program = torch.export.export(m, x, strict=False)
        if form:
            program = program.run_decompositions()
        if name == "unplaced":
            without_module(program, UNPLACED)
        torch.export.save(without_stacks(program), path + form + ".pt2")
    inputs = dict(zip(("input_input", "scale_input", "target_input") if name == "named" else ("input", "second"), x))
    start = {key: value.clone() for key, value in m.state_dict().items()}
    y = m(*(v.clone() for v in x))
    y = (y[1] if isinstance(y, tuple) else y).detach()
    m.load_state_dict(start)
    target = torch.randint(0, classes[0], y.shape[:-1]) if classes else torch.randn_like(y)
    save_file(inputs, path + ".input.safetensors")
    save_file({"output": y.contiguous()}, path + ".output.safetensors")
    save_file({**inputs, "target": target}, path + ".batch.safetensors")
    if trains:
        with open(path + ".tsv", "w") as file:
            file.write("loss\tgrad_norm\n")
            for loss, norm, optimizer in steps_of(m, x, target, classes):
                file.write(f"{loss:.9g}\t{norm:.9g}\n")
    if name == "norm_twice":
        state = {key: value for key, value in m.state_dict().items() if value.is_floating_point()}
        for key, p in m.named_parameters():
            for kind in ("exp_avg", "exp_avg_sq"):
                state[f"optim.{kind}.{key}"] = optimizer.state[p][kind]
        save_file(state, path + ".saved.safetensors")
    sizes = [os.path.getsize(path + form + ".pt2") for form in forms]
    print(name, len(y.flatten()), "outputs; bytes", *sizes, flush=True)


for chosen in sys.argv[1:] or models:
    write(chosen)
