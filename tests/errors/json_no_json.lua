read_json("json_missing.lua")
