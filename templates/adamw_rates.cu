  const double lr = learning_rate(t);
  now.keep = (float)(1 - lr * $decay$); // what its decay leaves of a weight
  now.rate = (float)(lr / (1 - pow($beta1$, t))); // for m, which begins as 0
  now.root = (float)(1 / sqrt(1 - pow($beta2$, t))); // and for the root of v
