error("leak: " .. string.format("%p %p %s %q", {}, print, {}, 1) .. #string.format("%p", {}))
