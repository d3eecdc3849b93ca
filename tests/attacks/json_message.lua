-- A path is shown as it is, but not to the terminal.
read_json("\27[2J\27]0;owned\7" .. string.rep("a", 900))
