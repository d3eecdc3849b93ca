return train{
  model = nn.Linear(4, 3), batch = {x = randn{2, 4}, y = randn{2, 3}},
  forward = function(model, batch) return model(batch.x) end,
  loss = function(output, batch) return F.mse_loss(output, batch.y) end,
  optimizer = SGD{}, steps = 1, norm_type = "inf",
}
