while true do print(("flood "):rep(1000)) end
