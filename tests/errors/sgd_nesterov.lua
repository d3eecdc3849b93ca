local how = SGD{lr = 0.1, nesterov = true}
