// SPDX-License-Identifier: MIT
#pragma once

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>

namespace foretail::ns3_driver {

/// Writes fixed-size records; every failure, a full disk included, throws std::runtime_error naming the file.
template <class Record>
class RecordFile {
public:
    explicit RecordFile(std::string path) : path_(std::move(path)), file_(std::fopen(path_.c_str(), "wb")) {
        if (!file_) fail();
        std::setvbuf(file_.get(), nullptr, _IOFBF, 1 << 20);
    }
    void write(const Record& record) {
        if (std::fwrite(&record, sizeof record, 1, file_.get()) != 1) fail();
    }
    void close() {
        if (std::fclose(file_.release()) != 0) fail();
    }

private:
    [[noreturn]] void fail() const {
        throw std::runtime_error("cannot write '" + path_ + "': " + std::strerror(errno));
    }

    struct Close {
        void operator()(std::FILE* file) const { std::fclose(file); }
    };

    std::string path_;
    std::unique_ptr<std::FILE, Close> file_;
};

}  // namespace foretail::ns3_driver
