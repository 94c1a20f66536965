// SPDX-License-Identifier: MIT
// Operators new and delete for a program that asks for dozens of small blocks per packet, of few sizes: every thread
// keeps the blocks that it gives back, by size, and never returns them to the system. They replace the global ones
// because most of the blocks are ns-3's own (packets, tags, events), which no pool of frames would hold: without them a
// run takes 1.1 times the CPU time (docs/reference/driver.md, Speed). Sanitizers have to see every block and get none
// of this.
#include <array>
#include <cstddef>
#include <cstdlib>
#include <limits>
#include <new>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define __SANITIZE_ADDRESS__ 1
#endif
#endif

#ifndef __SANITIZE_ADDRESS__

namespace {

/// In front of every block, of which it keeps the alignment.
struct alignas(__STDCPP_DEFAULT_NEW_ALIGNMENT__) Header {
    std::size_t units = 0;  ///< size in headers, this one included; 0: from malloc
    Header* next = nullptr;
};

static_assert(sizeof(Header) == __STDCPP_DEFAULT_NEW_ALIGNMENT__, "a block behind it has the same alignment");

constexpr std::size_t largest_units = 64, chunk_units = 4096, largest_bytes = (largest_units - 1) * sizeof(Header);

thread_local constinit std::array<Header*, largest_units + 1> given_back{};
thread_local constinit Header* chunk = nullptr;
thread_local constinit std::size_t left_units = 0;

Header* from_system(std::size_t bytes) {
    auto* header = static_cast<Header*>(std::malloc(bytes));
    if (!header) throw std::bad_alloc();
    return header;
}

[[gnu::noinline]] void* large(std::size_t bytes) {
    if (bytes > std::numeric_limits<std::size_t>::max() - sizeof(Header)) throw std::bad_alloc();
    return ::new (from_system(sizeof(Header) + bytes)) Header{} + 1;
}

[[gnu::noinline]] void* fresh(std::size_t units) {
    if (units > left_units) {  // what is left of the old chunk is lost
        chunk = from_system(chunk_units * sizeof(Header));
        left_units = chunk_units;
    }
    auto* header = ::new (chunk) Header{units, nullptr};
    chunk += units;
    left_units -= units;
    return header + 1;
}

}  // namespace

void* operator new(std::size_t bytes) {
    if (bytes > largest_bytes) return large(bytes);
    const std::size_t units = (bytes + 2 * sizeof(Header) - 1) / sizeof(Header);
    if (!given_back[units]) return fresh(units);
    Header* header = given_back[units];
    given_back[units] = header->next;
    return header + 1;
}

void operator delete(void* block) noexcept {
    if (!block) return;
    Header* header = static_cast<Header*>(block) - 1;
    if (header->units == 0) return std::free(header);
    header->next = given_back[header->units];
    given_back[header->units] = header;
}

void operator delete(void* block, std::size_t) noexcept { operator delete(block); }

#endif  // __SANITIZE_ADDRESS__
