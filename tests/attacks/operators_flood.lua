-- Operators without end, each given a longer name.
for i = 1, 1000000 do
  operator{name = "o" .. i, rule = "...->...", kernel = "o.c"}
end
