  const double lr = learning_rate(t);
  now.keep = (float)(1 - lr * $decay$); // weight decay
  now.rate = (float)(lr / (1 - pow($beta1$, t))); // step size, bias-corrected for m
  now.root = (float)(1 / sqrt(1 - pow($beta2$, t))); // bias correction for the root of v
