// A few threads that stay awake between the steps of a stream. They help where a step is over in microseconds, less
// than it takes to wake a thread.
#pragma once

#include <cstddef>

namespace unrolled {

// Runs body(context, id, count) for every id below `count`, which is at most `members`.
//
// A helper takes its part if it is awake; a part that nobody has taken when the caller is through with its own, the
// caller takes. So nothing ever waits for a thread to wake, and a forked child, whose helpers are gone, runs alone.
// Helpers go to sleep a tenth of a millisecond after the last step, and are woken by two steps in quick succession, or
// by one that is `long_enough` to need them.
//
// The context is copied to where helpers look for it, `size` bytes, at most kMostContext: what they had to follow through
// pointers would come from the caller's core line by line.
constexpr size_t kMostContext = 512;
void share(int members, bool long_enough, void (*body)(const void* context, int id, int count), const void* context,
           size_t size);

}  // namespace unrolled
