local Mine = optimizer{
  name = "Mine",
  update = function(p, g, state, o)
    if o.step > 3 then return p - g end
    return p
  end,
}
return train{
  model = nn.Linear(2, 2), batch = {input = ones{2, 2}}, loss = function(y) return y:sum() end,
  steps = 9,
  optimizer = Mine{},
}
