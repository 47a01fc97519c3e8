// The way back through the history of a beam search, from the last step of each output. A thread for each output.
#include <device.cuh>

#include <arguments.h>

KERNEL trace_back(KERNEL_ARGUMENT Arguments a) {
    const int64_t output = static_cast<int64_t>(block_index()) * THREADS + thread_index();
    if (output >= a.rows * a.best) return;
    const int64_t row = output / a.best, last = a.times[output];
    int64_t at = a.starts[output];
    for (int64_t time = a.steps - 1; time >= 0; time--) {
        int64_t token = 0;
        if (time < last) {
            const int64_t here = time * a.rows + row, column = a.past_chosen[here * a.width + at];
            token = a.past_tokens[here * a.columns + column];
            at = a.past_origins[here * a.columns + column];
        }
        a.traced[output * a.steps + time] = token;
        a.path[output * a.steps + time] = at;
    }
}
