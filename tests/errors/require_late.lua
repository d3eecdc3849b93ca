return train{model = nn.Linear(4, 4), batch = {input = randn{4, 4}}, loss = function(o) require "required.fails" return o:sum() end, optimizer = SGD{}, steps = 1}
