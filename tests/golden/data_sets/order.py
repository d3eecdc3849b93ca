"""The order of a shuffled data set, written a second time: runtime/order.c has the first."""


def philox(counter, key):
    """Philox4x32-10: four words."""
    c, (k0, k1) = list(counter), key
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(b >> 32) ^ c[1] ^ k0, b & 0xFFFFFFFF, (a >> 32) ^ c[3] ^ k1, a & 0xFFFFFFFF]
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return c


def permuted(x, half, epoch, seed):
    """Eight rounds of a Feistel network over 2 * half bits."""
    left, right = x >> half, x & ((1 << half) - 1)
    for round in range(8):
        word = philox([right, round, epoch & 0xFFFFFFFF, epoch >> 32], (seed & 0xFFFFFFFF, seed >> 32))[0]
        left, right = right, (left ^ word) & ((1 << half) - 1)
    return left << half | right


def sample(place, samples, epoch, seed):
    """Which sample comes at a place of an epoch."""
    half = 1
    while 1 << 2 * half < samples:
        half += 1
    while True:
        place = permuted(place, half, epoch, seed)
        if place < samples:
            return place


def order(samples, epoch, seed):
    return [sample(place, samples, epoch, seed) for place in range(samples)]
