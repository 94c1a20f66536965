// SPDX-License-Identifier: MIT
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

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

}  // namespace foretail::packets
