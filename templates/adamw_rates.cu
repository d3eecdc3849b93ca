  const double lr = learning_rate(t);
  now.keep = (float)(1 - lr * $decay$); // of a weight, under its decay
  now.rate = (float)(lr / (1 - pow($beta1$, t)));
  now.root = (float)(1 / sqrt(1 - pow($beta2$, t)));
