// SPDX-License-Identifier: MIT
// The sender of DCQCN and the congestion marks of a switch, without a network.
//   dcqcn_check law BYTES_PER_NS GAIN ALPHA_NS INCREASE_NS INCREASE_BYTES FAST_ROUNDS ADDITIVE_BPS HYPER_BPS
// reads lines of a time and of the bytes that leave then, or 0 for a notification, and prints the rate after each.
//   dcqcn_check marks SEED SWITCH MARK_BYTES MARK_FULL_BYTES MARK_PROBABILITY PACKETS QUEUE...
// prints for each length of the queue how many of so many packets get a mark.
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <string>
#include <vector>

#include "packets/congestion_control.h"

namespace {

using namespace foretail::packets;

void run_law(const std::vector<double>& numbers) {
    const DcqcnSettings settings{.cnp_interval_ns = 0,
                                 .gain = numbers[1],
                                 .alpha_interval_ns = static_cast<std::int64_t>(numbers[2]),
                                 .increase_interval_ns = static_cast<std::int64_t>(numbers[3]),
                                 .increase_bytes = static_cast<std::int64_t>(numbers[4]),
                                 .fast_rounds = static_cast<std::int64_t>(numbers[5]),
                                 .additive_bps = numbers[6],
                                 .hyper_bps = numbers[7]};
    Dcqcn law(settings, Path{.bytes_per_ns = numbers[0]});
    std::int64_t time = 0, bytes = 0;
    while (std::cin >> time >> bytes) {
        if (bytes > 0) {
            law.sent(time, bytes);
        } else {
            law.notified(time);
        }
        std::printf("%.17g\n", law.bytes_per_ns());
    }
}

void count_marks(const std::vector<double>& numbers) {
    Transport transport;
    transport.mark_bytes = static_cast<std::int64_t>(numbers[2]);
    transport.mark_full_bytes = static_cast<std::int64_t>(numbers[3]);
    transport.mark_probability = numbers[4];
    CongestionMarks marks(transport, static_cast<std::uint64_t>(numbers[0]), static_cast<int>(numbers[1]));
    for (std::size_t i = 6; i < numbers.size(); ++i) {
        int marked = 0;
        for (int packet = 0; packet < static_cast<int>(numbers[5]); ++packet)
            marked += marks.marks(static_cast<std::int64_t>(numbers[i])) ? 1 : 0;
        std::printf("%d\n", marked);
    }
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 8) return 2;
    std::vector<double> numbers;
    for (int i = 2; i < argc; ++i) numbers.push_back(std::stod(argv[i]));
    if (std::string(argv[1]) == "law") {
        run_law(numbers);
    } else {
        count_marks(numbers);
    }
    return 0;
}
