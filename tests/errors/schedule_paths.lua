return train{
  model = nn.Linear(2, 2), batch = {input = ones{2, 2}}, loss = function(y) return y:sum() end,
  steps = 9,
  optimizer = SGD{}, schedule = function(t)
    local sum = 0
    for i = 1, 70 do if t > i then sum = sum + 1 end end
    return sum
  end,
}
