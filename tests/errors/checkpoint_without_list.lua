local mesh = device_mesh{ dp = 2 }
return train{
  model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2)), batch = { input = randn{8, 4} }, steps = 1,
  optimizer = SGD(), loss = function(output) return output:mean() end, checkpoint = "layer",
}
