-- A table made weak after the fact: what it still holds depends on the collector.
local mode = {}
local weak = setmetatable({}, mode)
mode.__mode = "v"
for i = 1, 20000 do weak[i] = {i} end
local n, sum = 0, 0
for i in pairs(weak) do n, sum = n + 1, sum + i end
error("leak: " .. n .. " " .. sum)
