-- args: -D a=1
-- Each file for which it asks has it read anew: together that must not take longer.
for i = 1, 4000000 do local x = i end
read_json("json_slow.lua")
