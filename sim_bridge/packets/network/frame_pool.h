// SPDX-License-Identifier: MIT
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace foretail::packets {

/// Frames that are used again and again: memory grows to the most that were in flight, and then stays.
///
/// A handle gives its frame back by itself. Frames that are lent are plain pointers, which can be copied with whatever
/// holds them: `save` and `restore` bring back what was in them, at the same place. Where frames have a `number`, the
/// pool numbers them from 0.
template <class Frame>
class FramePool {
public:
    struct Return {
        FramePool* pool = nullptr;
        void operator()(Frame* frame) const { pool->give_back(frame); }
    };
    using Handle = std::unique_ptr<Frame, Return>;

    /// What the frames of a pool hold, and which of them are in flight.
    struct Saved {
        std::vector<Frame> frames;
        std::vector<Frame*> free;
    };

    FramePool() { grow(); }
    FramePool(const FramePool&) = delete;
    FramePool& operator=(const FramePool&) = delete;

    [[nodiscard]] Handle take() { return {lend(), Return{this}}; }
    /// A frame that somebody has to give back.
    [[nodiscard]] Frame* lend() {
        if (free_.empty()) grow();
        Frame* frame = free_.back();
        free_.pop_back();
        return frame;
    }
    void give_back(Frame* frame) { free_.push_back(frame); }
    [[nodiscard]] std::size_t in_flight() const { return chunks_.size() * chunk_frames - free_.size(); }

    void save(Saved& saved) const {
        saved.frames.resize(chunks_.size() * chunk_frames);
        for (std::size_t i = 0; i < chunks_.size(); ++i)
            std::copy_n(chunks_[i].get(), chunk_frames, saved.frames.data() + i * chunk_frames);
        saved.free = free_;
    }
    /// Frames that came later are free again.
    void restore(const Saved& saved) {
        const std::size_t then = saved.frames.size() / chunk_frames;
        free_.clear();
        for (std::size_t i = then; i < chunks_.size(); ++i) add_free(chunks_[i].get());
        free_.insert(free_.end(), saved.free.begin(), saved.free.end());
        for (std::size_t i = 0; i < then; ++i)
            std::copy_n(saved.frames.data() + i * chunk_frames, chunk_frames, chunks_[i].get());
    }

private:
    static constexpr std::size_t chunk_frames = 1024;

    void grow() {
        // Not make_unique, which would clear all bytes of the frames, perhaps megabytes in the midst of a run.
        Frame* frames = chunks_.emplace_back(new Frame[chunk_frames]).get();
        if constexpr (requires { frames->number; }) {
            for (std::size_t i = 0; i < chunk_frames; ++i)
                frames[i].number = static_cast<std::int32_t>((chunks_.size() - 1) * chunk_frames + i);
        }
        free_.reserve(chunks_.size() * chunk_frames);
        add_free(frames);
    }
    void add_free(Frame* frames) {
        for (std::size_t i = 0; i < chunk_frames; ++i) free_.push_back(frames + i);
    }

    std::vector<std::unique_ptr<Frame[]>> chunks_;
    std::vector<Frame*> free_;
};

}  // namespace foretail::packets
