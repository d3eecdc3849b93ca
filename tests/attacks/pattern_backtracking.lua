-- A pattern that tries every way to cut a text in fifteen: no hook is called inside it.
return ("a"):rep(100):find((".-"):rep(15) .. "b")
