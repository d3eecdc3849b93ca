read_json("errors_nowhere.json")
