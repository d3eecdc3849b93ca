local kept
infer{
  model = nn.Linear(10, 5),
  batch = {input = randn{20, 10}},
  outputs = function(model, batch)
    kept = model(batch.input)
    return {output = kept}
  end,
}
local more = kept * 2
