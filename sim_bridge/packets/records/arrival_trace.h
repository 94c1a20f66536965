// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>

#include "buffer/queues/ring.hpp"
#include "buffer/records.hpp"
#include "buffer/types.hpp"
#include "packets/records/record_file.h"

namespace foretail::packets {

/// The arrivals of a run, in order, written as soon as their labels are known.
///
/// Only the arrivals from the oldest one without a label on are in memory: as many as pass while a packet is queued. An
/// arrival that may still be pushed out when its label is known is held until it is not.
class ArrivalTrace {
public:
    explicit ArrivalTrace(const std::string& path) : file_(path) {}

    /// Also writes pauses of ports, to a file of their own.
    void write_pauses(const std::string& path) { pauses_.emplace(path); }
    void paused(const buffer::PauseRecord& record) {
        if (pauses_) pauses_->write(record);
    }

    /// Also writes the priority that the sender of each arrival has given it, to a file of their own.
    void write_priorities(const std::string& path) { priorities_.emplace(path); }
    void sent_at(std::uint8_t priority) {
        if (priorities_) priorities_->write(priority);
    }

    /// The record of a new arrival, and its row. The reference is valid until the next arrival.
    buffer::ArrivalRecord& open(buffer::Row& row) {
        write_settled();
        row = first_ + static_cast<buffer::Row>(window_.size());
        return window_.emplace_back().record;
    }
    /// The record of an arrival that is still in memory; it stays there until an arrival after the one that settles it.
    buffer::ArrivalRecord& record(buffer::Row row) { return entry(row).record; }
    /// The label of a row has become known.
    void settle(buffer::Row row, buffer::Tick time, bool dropped) {
        auto& [record, settled, held] = entry(row);
        record.fate_time_ns = time;
        record.lqd_drop = dropped;
        labelled_drops_ += dropped && record.flow_class != buffer::FlowClass::control;
        settled = true;
    }
    /// Keeps an arrival in memory until `let_go`.
    void hold(buffer::Row row) { entry(row).held = true; }
    void let_go(buffer::Row row) { entry(row).held = false; }
    /// Every row has been settled. What is held is still queued, and stays accepted.
    void close() {
        while (!window_.empty() && window_.front().settled) write_first();
        if (!window_.empty()) throw std::logic_error("the trace ends with arrivals without a label");
        file_.close();
        if (pauses_) pauses_->close();
        if (priorities_) priorities_->close();
    }

    [[nodiscard]] std::int64_t rows() const { return first_; }
    [[nodiscard]] std::int64_t labelled_drops() const { return labelled_drops_; }

private:
    struct Entry {
        buffer::ArrivalRecord record;
        bool settled = false, held = false;
    };

    Entry& entry(buffer::Row row) {
        if (row < first_) throw std::logic_error("an arrival changed after its label was known");
        return window_[static_cast<std::size_t>(row - first_)];
    }

    void write_settled() {
        while (!window_.empty() && window_.front().settled && !window_.front().held) write_first();
    }
    void write_first() {
        file_.write(window_.front().record);
        window_.drop_front();
        ++first_;
    }

    RecordFile<buffer::ArrivalRecord> file_;
    std::optional<RecordFile<buffer::PauseRecord>> pauses_;
    std::optional<RecordFile<std::uint8_t>> priorities_;
    buffer::Ring<Entry> window_;
    buffer::Row first_ = 0;
    std::int64_t labelled_drops_ = 0;
};

}  // namespace foretail::packets
