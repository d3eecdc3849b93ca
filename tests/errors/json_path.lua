read_json(7)
