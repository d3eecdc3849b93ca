-- What train's parallel refuses, for tests/scripts/programs/parallel_plan.sh.
if args.searched then settings{{"wide", 1, "a setting that a search varies", search = {2}, type = "size"}, {"searched", nil, "", type = "flag"}} end
if args.mesh then device_mesh{{"a", 2}} end
local model = nn.Linear(8, 8)
if args.given then parallelize(model, device_mesh{{"a", 2}}, auto{tp = 2}) end
return train{
  model = model, batch = {input = randn{8, 8}, target = randn{8, 8}}, loss = function(y, b) return F.mse_loss(y, b.target) end,
  optimizer = SGD{lr = 0.1}, steps = 1, parallel = not args.given and auto{checkpoint = args.both and "layer"} or nil,
  checkpoint = args.both and "layer" or nil,
}
