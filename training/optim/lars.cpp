// LARS on the CPU over many tensors in one call. lars.py has the formulas; cpp.py compiles this file and calls it.
//
// A sum has LANES partial sums in float, which are added to one double after every BLOCK numbers. So its order, and
// every bit, do not depend on the width of the CPU's vectors. All arrays are float.

typedef long long i64;
constexpr i64 LANES = 32, BLOCK = 128 * LANES;

struct Rule {
    double kept, decay, ratio_decay, trust, eps, rate;
    int rate_in_momentum, ratio_in_momentum;
};

#if defined(__x86_64__) && defined(__gnu_linux__)
#define FOR_EVERY_CPU __attribute__((target_clones("avx2", "default")))
#else
#define FOR_EVERY_CPU
#endif

// Writes the sums of squares of w and g to out[0] and out[1].
FOR_EVERY_CPU static void squares(const float *w, const float *g, i64 size, double *out) {
    double w_sum = 0, g_sum = 0;
    for (i64 begin = 0; begin < size; begin += BLOCK) {
        const i64 end = begin + BLOCK < size ? begin + BLOCK : size;
        float w_lanes[LANES] = {}, g_lanes[LANES] = {};
        i64 i = begin;
        for (; i + LANES <= end; i += LANES)
            for (i64 lane = 0; lane < LANES; lane++) {
                w_lanes[lane] += w[i + lane] * w[i + lane];
                g_lanes[lane] += g[i + lane] * g[i + lane];
            }
        for (i64 lane = 0; i < end; i++, lane++) {
            w_lanes[lane] += w[i] * w[i];
            g_lanes[lane] += g[i] * g[i];
        }
        for (i64 lane = 0; lane < LANES; lane++) {
            w_sum += w_lanes[lane];
            g_sum += g_lanes[lane];
        }
    }
    out[0] = w_sum;
    out[1] = g_sum;
}

// v = kept v + scale (g + decay w),  w = w - taken v
FOR_EVERY_CPU static void move(float *__restrict w, const float *__restrict g, float *__restrict v, i64 size,
                               float scale, float decay, float kept, float taken) {
    for (i64 i = 0; i < size; i++) {
        const float velocity = kept * v[i] + scale * (g[i] + decay * w[i]);
        v[i] = velocity;
        w[i] -= taken * velocity;
    }
}

static double ratio(const Rule &rule, const double *norms_squared) {
    const double w = __builtin_sqrt(norms_squared[0]), g = __builtin_sqrt(norms_squared[1]);
    return w > 0 && g > 0 ? rule.trust * w / (g + rule.ratio_decay * w + rule.eps) : 1;
}

extern "C" {

// One step. A tensor is read from memory once, and from the cache when it is moved.
void lars_move(const Rule *rule, i64 count, const i64 *sizes, const unsigned char *scaled, float *const *w,
               const float *const *g, float *const *v) {
    const double added = rule->rate_in_momentum ? rule->rate : 1, taken = rule->rate_in_momentum ? 1 : rule->rate;
    for (i64 t = 0; t < count; t++) {
        double found[2] = {0, 0};
        if (scaled[t]) squares(w[t], g[t], sizes[t], found);
        const double by = scaled[t] ? ratio(*rule, found) : 1;
        const double before = rule->ratio_in_momentum ? by : 1, after = rule->ratio_in_momentum ? 1 : by;
        move(w[t], g[t], v[t], sizes[t], added * before, scaled[t] ? rule->decay : 0, rule->kept, taken * after);
    }
}
}
