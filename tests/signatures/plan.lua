-- What stands ahead of a call that tests/scripts/language/signatures.sh tries: the tensors that the samples name.
local batch = {
  x = randn{4, 6}, y = randn{4, 6}, p = rand{4, 6}, w = randn{6, 3}, weight = randn{3, 6}, row = randn{6},
  p_row = rand{6}, bias3 = randn{3}, bias4 = randn{4}, bias2 = randn{2}, four = randn{4},
  index = randint(4){4, 6}, label = randint(4){4}, columns = randint(4){6}, mask = zeros{4, 6, dtype = "bool"},
  line = randn{3, 2, 9}, line_weight = randn{4, 2, 3}, line_weight_t = randn{2, 4, 3},
  image = randn{3, 2, 9, 9}, image4 = randn{3, 4, 9, 9}, image_weight = randn{4, 2, 3, 3},
  image_weight_t = randn{2, 4, 3, 3}, weight9 = randn{9, 3}, q = randn{2, 2, 5, 4},
  seen = zeros{5, 5, dtype = "bool"}, three = randn{3, 2, 4}, three_t = randn{3, 4, 2}, six_four = randn{6, 4},
  volume = randn{3, 2, 5, 9, 9}, volume_weight = randn{4, 2, 3, 3, 3}, tokens = randn{5, 3, 6},
}

-- The model that runs f(t), or the module that `make` gives, on what `of` gives of t.
local function tried(f, make, of)
  local Model = nn.module("Model", function(self)
    if make then self.module = make() end
    function self:forward(t)
      local y = make and self.module(of(t)) or f(t)
      return type(y) == "number" and F.full({}, y) or y
    end
  end)
  return infer{model = Model(), batch = batch,
    outputs = function(model, t) return {y = model(t)} end}
end

