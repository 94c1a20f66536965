// SPDX-License-Identifier: MIT
#pragma once

#include <cmath>
#include <cstdint>

#include "buffer/types.hpp"

namespace foretail::buffer {

/// Low-pass filter of a length that is constant between its changes (thesis equation 5.11, applied once per tick):
/// after `held` for dt ticks, average = held + (average - held) * keep^dt.
class LowPass {
public:
    /// Takes in that the signal was `held` since the last call.
    void observe(Tick now, Bytes held, double keep) {
        const Tick elapsed = now - last_;
        if (elapsed <= 0) return;
        const double kept = elapsed == 1 ? keep : std::pow(keep, static_cast<double>(elapsed));
        value_ = static_cast<double>(held) + (value_ - static_cast<double>(held)) * kept;
        last_ = now;
    }
    [[nodiscard]] double value() const { return value_; }

private:
    double value_ = 0;
    Tick last_ = 0;
};

}  // namespace foretail::buffer
