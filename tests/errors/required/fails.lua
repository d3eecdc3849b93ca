local M = {}
function M.fail(x)
  error("this is no " .. x)
end
function M.misfit() return F.linear(randn{2, 3}, randn{4, 5}) end
return M
