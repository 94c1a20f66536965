// SPDX-License-Identifier: MIT
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

namespace foretail::packets {

/// Frames that are used again and again: memory grows to the most that were in flight, and then stays.
template <class Frame>
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
        // Not make_unique, which would clear all bytes of the frames, perhaps megabytes in the midst of a run.
        Frame* frames = chunks_.emplace_back(new Frame[chunk_frames]).get();
        free_.reserve(chunks_.size() * chunk_frames);
        for (std::size_t i = 0; i < chunk_frames; ++i) free_.push_back(frames + i);
    }

    std::vector<std::unique_ptr<Frame[]>> chunks_;
    std::vector<Frame*> free_;
};

}  // namespace foretail::packets
