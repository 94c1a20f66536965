// SPDX-License-Identifier: MIT
#pragma once

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace foretail::packets {

/// Writes fixed-size records; every failure, a full disk included, throws std::runtime_error naming the file.
template <class Record>
class RecordFile {
public:
    explicit RecordFile(std::string path) : path_(std::move(path)), file_(std::fopen(path_.c_str(), "wb")) {
        if (!file_) fail();
        std::setvbuf(file_.get(), nullptr, _IONBF, 0);  // the batch is the buffer
        batch_.reserve(batch_records);
    }
    void write(const Record& record) {
        batch_.push_back(record);
        if (batch_.size() == batch_records) flush();
    }
    void close() {
        flush();
        if (std::fclose(file_.release()) != 0) fail();
    }

private:
    static constexpr std::size_t batch_records = 4096;

    void flush() {
        if (std::fwrite(batch_.data(), sizeof(Record), batch_.size(), file_.get()) != batch_.size()) fail();
        batch_.clear();
    }
    [[noreturn]] void fail() const {
        throw std::runtime_error("cannot write '" + path_ + "': " + std::strerror(errno));
    }

    struct Close {
        void operator()(std::FILE* file) const { std::fclose(file); }
    };

    std::string path_;
    std::unique_ptr<std::FILE, Close> file_;
    std::vector<Record> batch_;
};

}  // namespace foretail::packets
