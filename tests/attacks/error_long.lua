error(("\n\27[31m\0\u{202e}long "):rep(1000000))
