// SPDX-License-Identifier: MIT
#pragma once

#include <sys/resource.h>
#include <sys/time.h>

namespace foretail::packets {

/// CPU time so far, of `who` as getrusage takes it: this process, or its children that have ended.
inline double cpu_seconds(int who = RUSAGE_SELF) {
    rusage usage{};
    getrusage(who, &usage);
    const auto seconds = [](const timeval& time) {
        return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
    };
    return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

}  // namespace foretail::packets
