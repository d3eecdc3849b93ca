// What the runtime fills, reads and writes:
// name in files, and in others' files, how many of them, role, type;
// offset in memory, from one to the next;
// dimensions, whole, here, how it begins.
static const struct tensor tensors[] = {
$tensors$};

$index_uses$static const struct group groups[] = {
$groups$};

$products$const struct program program = {
    .plan = plan_$hash$,
    .hash = "$hash$",
    .world = $world$,
    .seed = $seed$,
    .steps = $steps$,
$prepare$    .step = step,
    .batches = $batches$,
    .flops = $flops$,
    .arithmetic = $arithmetic$,
    .learning_rate = $rate$,
    .memory = (void **)&m,
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
