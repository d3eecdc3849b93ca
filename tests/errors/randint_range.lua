infer{model = nn.Identity(), batch = {input = randint(3, 3){2}}}
