// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "buffer/records.hpp"
#include "packets/settings.h"

namespace foretail::packets::emulator {

/// An IPv4 packet of a host's kernel, with what switches need of its headers read once.
struct Frame {
    std::int32_t size_bytes = 0;
    std::int32_t source = 0, destination = 0;  ///< hosts
    std::int32_t flow = -1;                    ///< index in the plan
    std::uint32_t path_hash = 0;
    buffer::FlowClass flow_class = buffer::FlowClass::control;
    bool first_rtt = false;
    bool ecn_capable = false;
    std::int64_t sent_bytes = 0;  ///< of its message, before it
    std::int64_t left_bytes = 0;  ///< of its message, after it
    std::array<std::uint8_t, Settings::most_packet_bytes> bytes;
};

/// Copies the beginning of the packet, as far as there is room.
inline void copy_beginning(const Frame& frame, std::span<std::uint8_t> room) {
    const auto size = std::min(room.size(), static_cast<std::size_t>(frame.size_bytes));
    std::copy_n(frame.bytes.begin(), size, room.begin());
}

/// Frames that are used again and again: memory grows to the most that were in flight, and then stays.
class FramePool {
public:
    struct Return {
        FramePool* pool = nullptr;
        void operator()(Frame* frame) const { pool->free_.push_back(frame); }
    };
    using Handle = std::unique_ptr<Frame, Return>;

    FramePool() { grow(); }
    FramePool(const FramePool&) = delete;
    FramePool& operator=(const FramePool&) = delete;

    [[nodiscard]] Handle take() {
        if (free_.empty()) grow();
        Frame* frame = free_.back();
        free_.pop_back();
        return {frame, Return{this}};
    }
    [[nodiscard]] std::size_t in_flight() const { return chunks_.size() * chunk_frames - free_.size(); }

private:
    static constexpr std::size_t chunk_frames = 1024;

    void grow() {
        // Not make_unique, which would clear the bytes, nine megabytes in the midst of a run.
        Frame* frames = chunks_.emplace_back(new Frame[chunk_frames]).get();
        free_.reserve(chunks_.size() * chunk_frames);
        for (std::size_t i = 0; i < chunk_frames; ++i) free_.push_back(frames + i);
    }

    std::vector<std::unique_ptr<Frame[]>> chunks_;
    std::vector<Frame*> free_;
};

}  // namespace foretail::packets::emulator
