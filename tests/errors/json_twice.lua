read_json("json_twice.json")
