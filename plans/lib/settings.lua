-- The settings of a plan: what -D says, else a configuration or a preset, else what the plan gives.

local M = {}

-- A Hugging Face model's config.json, and functions that read it. types: the model_type that the plan
-- knows. need(key) is an error where the key is missing; only(key, value) where it is anything else.
function M.config(path, types)
  local config = read_json(path)
  local of = {at = config}
  function of.need(key)
    local value = config[key]
    if value == nil then error(path .. " has no '" .. key .. "'") end
    return value
  end
  function of.only(key, known)
    local value = config[key]
    if value ~= nil and value ~= false and value ~= known or value == false and known then
      error(path .. ": " .. key .. " is " .. tostring(value) .. "; this plan knows "
        .. tostring(known) .. " alone")
    end
  end
  -- Whether the file has the key, be it null.
  function of.has(key) return read_json(path, false)[key] ~= nil end
  -- The token whose row of the embedding learns nothing, or nil. usual: Hugging Face's where the file does not
  -- say it; negative ones count from the end of `vocab` rows.
  function of.pad(vocab, usual)
    local pad = config.pad_token_id
    if pad == nil and not of.has("pad_token_id") then pad = usual end
    return pad and pad < 0 and pad + vocab or pad
  end
  local is_known = false
  for _, name in ipairs(types) do is_known = is_known or config.model_type == name end
  if not is_known then
    error(path .. ": model_type is " .. tostring(config.model_type) .. "; this plan knows "
      .. table.concat(types, ", "))
  end
  return of
end

-- A file without sliding_window has the window that Hugging Face's class of the model has; null is none.
-- config: of M.config.
function M.usual_window(config)
  local has_windows = {mistral = true, qwen2 = true, qwen3 = true, gemma2 = true}
  if has_windows[config.at.model_type] and not config.has("sliding_window") then
    config.at.sliding_window = 4096
  end
end

-- The rotary embedding's angle and scaling, and the part of a head that is rotated, or nil: newer files
-- have all in rope_parameters.
function M.rope(config)
  local rope, scaling = config.rope_parameters or config.rope_scaling or {}, {}
  local elsewhere = {rope_theta = true, type = true, partial_rotary_factor = true}
  for key, value in pairs(rope) do
    if not elsewhere[key] then scaling[key] = value end
  end
  scaling.rope_type = rope.rope_type or rope.type or "default"
  return rope.rope_theta or config.rope_theta, scaling,
    rope.partial_rotary_factor or config.partial_rotary_factor
end

-- How many names a table has, such as a configuration's id2label; nil where there is none.
function M.count(names)
  local n = 0
  for _ in pairs(names or {}) do n = n + 1 end
  return names and n or nil
end

-- Functions that read settings; known: the preset's or the configuration's.
function M.of(known)
  local of = {}
  function of.setting(name, otherwise)
    local value = args[name]
    if value == nil then value = known[name] end
    if value == nil then value = otherwise end
    return value
  end
  function of.whole(name, otherwise)
    local value = of.setting(name, otherwise)
    if math.type(value) ~= "integer" or value < 1 then
      error(name .. " must be a whole number, 1 or more, not " .. tostring(value))
    end
    return value
  end
  function of.flag(name, otherwise)
    local value = of.setting(name, otherwise)
    if type(value) ~= "boolean" then
      error(name .. " must be true or false, not " .. tostring(value))
    end
    return value
  end
  return of
end

return M
