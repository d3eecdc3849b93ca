-- ResNet, the classification of images, from a Hugging Face folder or from the start. Data parallel; the
-- statistics of a norm are those of the whole batch, over all ranks. Along tp the classifier is cut.
--
--   tpgen plans/resnet.lua -o out/ -D config=resnet-50/config.json -D dp=4 -D batch=256
--   out/run.sh --weights resnet-50 --data images.safetensors
--
-- The data has pixel_values [batch, channels, size, size] and labels [batch]. tpgen
-- plans/resnet.lua --help lists the settings.

local hugging_face, shared = require "lib.hugging_face", require "lib.settings"
local parallel, training = require "lib.parallel", require "lib.training"

local function from_config(path)
  local config = hugging_face.config(path, {"resnet"})
  local need, at = config.need, config.at
  config.only("hidden_act", "relu")
  config.only("downsample_in_first_stage", false)
  config.only("downsample_in_bottleneck", false)
  return {
    stem = need("embedding_size"), sizes = need("hidden_sizes"), depths = need("depths"),
    layer_type = need("layer_type"), channels = need("num_channels"),
    classes = hugging_face.count(at.id2label), image = 224,
  }
end

local known = args.config and from_config(args.config)
  or {stem = 8, sizes = {16, 32}, depths = {1, 2}, layer_type = "bottleneck", image = 32, batch = 4,
    classes = 10}
local args = settings({shared.files,
  shared.model{
    {"image", nil, "the height and the width of an image", type = "size"},
    {"channels", 3, "channels of an image"},
    {"classes", 2, "classes of the images"},
  },
  shared.mesh, shared.training,
}, known)
local image, channels, classes = args.image, args.channels, args.classes
local p = parallel.open(args)

-- ------------------------------------------------------------------------------------- the model

-- A convolution, its norm and perhaps relu.
local Conv = nn.module("Conv", function(self, inputs, outputs, kernel, stride, last)
  self.convolution = nn.Conv2d(inputs, outputs,
    {kernel_size = kernel, stride = stride, padding = kernel // 2, bias = false})
  self.normalization = nn.BatchNorm2d(outputs)
  function self:forward(x)
    x = self.normalization(self.convolution(x))
    return last and x or F.relu(x)
  end
end)

local Layer = nn.module("Layer", function(self, inputs, outputs, stride)
  local inner = outputs // 4
  self.shortcut = (inputs ~= outputs or stride ~= 1) and Conv(inputs, outputs, 1, stride, true)
    or nn.Identity()
  if known.layer_type == "bottleneck" then
    self.layer = nn.Sequential(Conv(inputs, inner, 1, 1), Conv(inner, inner, 3, stride),
      Conv(inner, outputs, 1, 1, true))
  else
    self.layer = nn.Sequential(Conv(inputs, outputs, 3, stride), Conv(outputs, outputs, 3, 1, true))
  end
  function self:forward(x) return F.relu(self.layer(x) + self.shortcut(x)) end
end)

local Stage = nn.module("Stage", function(self, inputs, outputs, stride, depth)
  local layers = {}
  for i = 1, depth do
    layers[i] = Layer(i == 1 and inputs or outputs, outputs, i == 1 and stride or 1)
  end
  self.layers = nn.Sequential(table.unpack(layers))
  function self:forward(x) return self.layers(x) end
end)

local ResNet = nn.module("ResNet", function(self)
  self.embedder = Conv(channels, known.stem, 7, 2)
  local stages, inputs = {}, known.stem
  for i, outputs in ipairs(known.sizes) do
    stages[i] = Stage(inputs, outputs, i == 1 and 1 or 2, known.depths[i])
    inputs = outputs
  end
  self.stages = nn.Sequential(table.unpack(stages))
  self.classifier = nn.Linear(inputs, classes)
  function self:forward(pixels)
    local x = F.max_pool2d(self.embedder(pixels), 3, 2, 1)
    return self.classifier(self.stages(x):mean({2, 3}))
  end
end)

-- -------------------------------------------------------------------------------------- the plan

local model = parallelize(ResNet(), p.mesh.tp, {
  classifier = Colwise{output_layouts = Replicate()},
})
p.shard(model, model.embedder, model.stages, model.classifier)

return train(training.options(args, p, {
  model = model,
  batch = p.distribute{
    pixel_values = randn{p.batch, channels, image, image}, labels = randint(0, classes){p.batch},
  },
  forward = function(model, batch) return model(batch.pixel_values) end,
  loss = function(logits, batch) return F.cross_entropy(logits, batch.labels) end,
  names = {
    ["embedder.**"] = "resnet.embedder.embedder.**", ["stages.**"] = "resnet.encoder.stages.**",
    ["classifier.*"] = "classifier.1.*",
  },
}))
