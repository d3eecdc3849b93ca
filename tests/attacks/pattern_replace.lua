-- Each of a million places becomes a million bytes.
return (("x"):rep(1000000):gsub("", ("y"):rep(1000000)))
