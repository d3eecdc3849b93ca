for i = 1, 9 do read_json(string.rep("./", i) .. "json_list.json") end
