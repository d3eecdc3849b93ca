static const struct group groups[] = {
$groups$};

$products$// program.h explains the fields.
const struct program program = {
    .plan = plan_$hash$,
    .hash = "$hash$",
    .world = $world$,
    .seed = $seed$,
    .steps = $steps$,
$prepare$    .step = step,
    .batches = $batches$,
    .shuffles = $shuffles$,
    .shuffle = $shuffle$u,
    .last_batch = $last_batch$,
    .validate = $validate$,
    .validation_data = $validation_data$,
    .validate_every = $every$,
    .validate_steps = $validate_steps$,
$adapter$    .flops = $flops$,
    .arithmetic = $arithmetic$,
    .learning_rate = $rate$,
    .memory = &given_memory,
    .bytes = sizeof(struct memory),
    .loss = $loss$,
    .grad_norm = $norm$,
    .tensors = tensors,
    .ntensors = $ntensors$,
    .index_uses = $index_list$,
    .nindex_uses = $nindex_uses$,
    .noted = $noted$,
    .groups = groups,
    .ngroups = $ngroups$,
$events$};
