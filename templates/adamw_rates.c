  const double lr = learning_rate(t);
  const float keep = (float)(1 - lr * $decay$); // what its decay leaves of a weight
  const float rate = (float)(lr / (1 - pow($beta1$, t))); // for m, which begins as 0
  const float root = (float)(1 / sqrt(1 - pow($beta2$, t))); // and for the root of v
