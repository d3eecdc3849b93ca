-- Addresses differ from run to run: none may reach a message.
error("leak: " .. tostring({}) .. tostring(print) .. tostring(function() end) .. tostring(nn))
