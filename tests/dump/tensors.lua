-- Everything that a plan can compute.
return infer{
  model = nn.Identity(),
  batch = {a = randn{2, 3, 4}, b = rand{3, 1}, c = ones{4, 5}, d = zeros{2, 4, 6}},
  outputs = function(_, batch)
    local a, b, c, d = batch.a, batch.b, batch.c, batch.d
    return {
      o01 = a + b, o02 = a - b, o03 = a * b, o04 = a / b, o05 = -a,
      o06 = a + 1, o07 = 2 - a, o08 = a * 3, o09 = 0.5 * a, o10 = a / 4, o11 = 1 / a, o12 = a ^ 2,
      o13 = a:relu(), o14 = F.silu(a), o15 = a:sigmoid(), o16 = F.tanh(a), o17 = a:exp(),
      o18 = a:sum(), o19 = a:sum(0), o20 = a:mean(-1, true), o21 = a:mean{0, 2},
      o22 = a:var(), o23 = a:var(1), o24 = a:var({0, 1}, true, true),
      o25 = F.matmul(a, c), o26 = F.matmul(a, d),
      o27 = a, -- an output of its own
    }
  end,
}
