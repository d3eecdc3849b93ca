-- Values with the names of functions that a program calls: of kernels, of products, of rows by expert; with stages (-D pp=2,
-- pipeline.sh) of what these send. In the program they have other names.
-- mesh: ep=2
-- mesh: ep=4
local words, ep, pp = {}, args.ep or 1, args.pp or 1
for word in (args.words or "exp,gemm,memset,grouped_nn,grouped_nt,grouped_tn,all_rows,rows_of_places,rows_to_experts,rows_to_tokens,"
  .. "send_to,receive_from,post_receive,await_received,await_sent,microbatch,slot,in_flight"):gmatch("[^,]+") do words[#words + 1] = word end
local mesh = device_mesh{ {"pp", pp}, {"ep", ep} }

local Named = nn.module("Named", function(self)
  for _, word in ipairs(words) do self[word] = nn.Linear(4, 4) end
  function self:forward(x)
    for _, word in ipairs(words) do x = x + self[word](x):tanh() end
    return x
  end
end)
local Model = nn.module("Model", function(self)
  for _, word in ipairs(words) do self[word] = nn.Linear(4, 4) end
  self.moe, self.blocks = nn.MoE(4, {experts = 4, top_k = 2, hidden = 6}), nn.ModuleList{Named(), Named()}
  self.norm = nn.LayerNorm(4)
  function self:forward(x)
    for _, word in ipairs(words) do x = x + self[word](x):gelu() end
    x = x + self.moe(x)
    for _, block in ipairs(self.blocks) do x = block(x) end
    return self.norm(x):softmax(-1)
  end
end)

local model = Model()
if ep > 1 then parallelize(model.moe, mesh.ep, {experts = ExpertParallel()}) end
if pp > 1 then pipeline(model, mesh.pp, {microbatches = 2, split = {"blocks.0"}}) end
return train{
  model = model, batch = distribute({input = randn{4, 3, 4}, target = randn{4, 3, 4}}, mesh.ep, Shard(0)),
  loss = function(output, batch) return ((output - batch.target)^2):mean() end,
  optimizer = AdamW{lr = 0.02}, clip = 1, steps = 2,
}
