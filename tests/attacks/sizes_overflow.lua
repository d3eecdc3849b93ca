-- Sizes whose product is what it should be, modulo 2^64.
return infer{
  model = nn.Identity(), batch = {input = randn{1}},
  outputs = function(_, b)
    return {output = b.input:view(274177, 67280421310721)}
  end,
}
