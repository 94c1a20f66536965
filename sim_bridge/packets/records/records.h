// SPDX-License-Identifier: MIT
// Files that a run leaves: records, arrivals of a trace, counts of switches, and the summary.
#pragma once

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>
#include <nlohmann/json.hpp>
#include <nlohmann/json_fwd.hpp>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "buffer/records.hpp"
#include "packets/settings/settings.h"

namespace foretail::packets {

/// Writes fixed-size records; every failure, a full disk included, throws std::runtime_error naming the file.
///
/// A copy writes to the same file, and knows how far the original had come: once the original is set to it again, what
/// was written meanwhile is written over, and cut off in the end.
template <class Record>
class RecordFile {
public:
    explicit RecordFile(std::string path) : file_(std::make_shared<File>(std::move(path))) {
        batch_.reserve(batch_records);
    }
    void write(const Record& record) {
        batch_.push_back(record);
        if (batch_.size() == batch_records) flush();
    }
    void close() {
        flush();
        file_->close(static_cast<off_t>(written_));
    }

private:
    static constexpr std::size_t batch_records = 4096;

    /// The file itself, which all copies share.
    class File {
    public:
        explicit File(std::string path)
            : path_(std::move(path)), descriptor_(open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) {
            if (descriptor_ < 0) fail();
        }
        File(const File&) = delete;
        File& operator=(const File&) = delete;
        ~File() {
            if (descriptor_ >= 0) ::close(descriptor_);
        }
        void write(const void* records, std::size_t bytes, off_t place) {
            for (const auto* from = static_cast<const char*>(records); bytes > 0;) {
                const ssize_t done = pwrite(descriptor_, from, bytes, place);
                if (done < 0 && errno == EINTR) continue;
                if (done < 0) fail();
                from += done;
                bytes -= static_cast<std::size_t>(done);
                place += done;
            }
            if (place > length_) length_ = place;
        }
        void close(off_t length) {
            if (length < length_ && ftruncate(descriptor_, length) != 0) fail();
            if (::close(std::exchange(descriptor_, -1)) != 0) fail();
        }

    private:
        [[noreturn]] void fail() const {
            throw std::runtime_error("cannot write '" + path_ + "': " + std::strerror(errno));
        }

        std::string path_;
        int descriptor_;
        off_t length_ = 0;
    };

    void flush() {
        const std::size_t bytes = batch_.size() * sizeof(Record);
        file_->write(batch_.data(), bytes, static_cast<off_t>(written_));
        written_ += static_cast<std::int64_t>(bytes);
        batch_.clear();
    }

    std::shared_ptr<File> file_;
    std::int64_t written_ = 0;  ///< bytes
    std::vector<Record> batch_;
};

/// Writes summary.json, the last file of a run; throws std::runtime_error when it cannot.
inline void write_summary(const std::string& folder, const nlohmann::json& summary) {
    std::ofstream out(folder + "/summary.json");
    out << summary.dump(1) << '\n';
    out.close();
    if (!out) throw std::runtime_error("cannot write '" + folder + "/summary.json'");
}

/// CPU time so far, of `who` as getrusage takes it: this process, or its children that have ended.
inline double cpu_seconds(int who = RUSAGE_SELF) {
    rusage usage{};
    getrusage(who, &usage);
    const auto seconds = [](const timeval& time) {
        return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
    };
    return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

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

/// Packets and bytes of one class through one switch.
struct ClassCount {
    std::int64_t packets = 0, bytes = 0;
    void add(std::int64_t size) {
        ++packets;
        bytes += size;
    }
};

/// What became of the packets that may not be lost, and how often their senders were paused and resumed.
struct LosslessCounts {
    ClassCount in, out, drops;
    std::int64_t pauses = 0, resumes = 0;
    std::int64_t paused_ns = 0;            ///< of all queues at ingress together
    std::int64_t most_headroom_bytes = 0;  ///< in use at one time
};

/// What a switch saw: arrivals of control and data, departures, and data and control drops by outcome.
struct SwitchCounts {
    ClassCount data_in, control_in, data_out, control_out;
    std::array<ClassCount, 5> data_drops, control_drops;  ///< by buffer::Outcome; `accepted` stays empty
    std::int64_t asked = 0;
    std::int64_t marked = 0;
    LosslessCounts lossless;
};

/// A switch in a run's summary.
nlohmann::json switch_summary(std::string_view role, std::int64_t buffer_bytes,
                              const std::vector<std::int64_t>& rates_bps, const SwitchCounts& counts,
                              std::int64_t queued_bytes, std::int64_t threshold_deficits);

/// What a switch that can pause senders adds to that.
nlohmann::json lossless_summary(const LosslessCounts& counts, const buffer::PauseSettings& settings);

/// The same of a leaf or a spine, by its number in the network: leaves first, then spines.
nlohmann::json switch_summary(const Topology& topology, int index, const SwitchCounts& counts,
                              std::int64_t queued_bytes, std::int64_t threshold_deficits);

}  // namespace foretail::packets
