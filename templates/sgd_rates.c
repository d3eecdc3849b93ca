  const float rate = (float)learning_rate(t);
