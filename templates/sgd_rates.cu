  now.rate = (float)learning_rate(t);
