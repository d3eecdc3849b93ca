-- Names that would break out of a page. A dot parts a name.
local long = string.rep("x", 255)
local names = {
  "</script><script>window['hacked'] = 1</script>", "'\" onload='window[hacked] = 1' &amp; <b>", "<!-- <script> \u{202e}\u{2066}abc\u{2069}",
  "<img src=x onerror=window['hacked']=1>", long, "]]></style>\\u003c/script>`${window}`", "a b\tc",
}
local mesh = device_mesh{{"</script><i>", 2}, {"\"><svg onload=window['hacked']=1>", 2}, device = "H100"}
local Model = nn.module("</script>", function(self)
  for _, name in ipairs(names) do self[name] = nn.Linear(8, 8, {bias = false}) end
  function self:forward(x)
    for _, name in ipairs(names) do x = F.relu(self[name](x)) end
    return x
  end
end)
local model = parallelize(Model(), mesh["\"><svg onload=window['hacked']=1>"], {["*script*"] = Colwise{output_layouts = Replicate()}})
local batch = distribute({input = randn{8, 8}, ["</title><script>window['hacked']=1</script>"] = randn{8, 8}}, mesh["</script><i>"], Shard(0))
return train{model = model, batch = batch, loss = function(output, batch) return (output - batch["</title><script>window['hacked']=1</script>"]):var() end,
  optimizer = SGD{lr = 0.1}, steps = 2}
